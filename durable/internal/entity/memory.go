package entity

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"
)

// A reason is why a message may arrive again after it took effect. It determines how long the
// memory holds the message's ID. Each reason has a limit of its own: a burst for one reason
// does not evict IDs that are held for another.
type reason int

const (
	redelivery reason = iota // the message was not deleted; held until the batch is settled, or for unsettledTime
	rerun                    // the sender lost its checkpoint and runs again; held for rerunTime
	retry                    // a client's library sends it again; the last maxRetries are held
)

// Times are measured from the arrival of a message. If a worker acquired the entity later and
// does not know whether the last batch is settled, they are measured from then on. No message
// arrives while no worker runs.
const (
	// A message is redelivered after its visibility timeout, by default 5 minutes, and after
	// the messages before it in the queue.
	unsettledTime = time.Hour
	// A sender runs again after the visibility timeout of its messages.
	rerunTime = 15 * time.Minute

	maxReruns  = 2048
	maxRetries = 128
)

// A memory holds the IDs of messages that took effect, and the outboxes of unsettled batches.
type memory struct {
	last      batch   // the batch that produced this State
	unsettled []batch // the batches before last
	reruns    []minute
	retries   marks
	woken     time.Time // when an unsettled batch was last found
}

// A batch holds the IDs and the outbox of one [Batch] until that is settled; see [State.Settle].
type batch struct {
	taken  marks
	outbox []Message
}

// A minute holds the marks of one minute.
type minute struct {
	at    time.Time
	marks marks
}

// has reports whether a message with the given ID has taken effect. If an unsettled batch
// took it, the outbox of that batch is sent again. The message was delivered again, so the
// batch's messages were not deleted, and deletion comes after sending.
func (m *memory) has(id string) bool {
	k := mark(id)
	known := slices.Contains(m.last.taken, k) || slices.Contains(m.retries, k) || m.mayRerun(k)
	for i := range m.unsettled {
		if b := &m.unsettled[i]; slices.Contains(b.taken, k) {
			m.last.outbox, b.outbox, known = append(m.last.outbox, b.outbox...), nil, true
		}
	}
	return known
}

func (m *memory) mayRerun(k uint64) bool {
	return slices.ContainsFunc(m.reruns, func(in minute) bool { return slices.Contains(in.marks, k) })
}

// add holds an ID until the batch is settled, and as long as its reason requires.
func (m *memory) add(id string, why reason, now time.Time) {
	k := mark(id)
	m.last.taken = append(m.last.taken, k)
	switch {
	case why == retry:
		m.retries = append(m.retries.last(maxRetries-1), k)
	case why == rerun && !m.mayRerun(k):
		m.addRerun(k, now.Truncate(time.Minute).Add(time.Minute))
	}
}

func (m *memory) addRerun(k uint64, at time.Time) {
	n := 0
	for _, in := range m.reruns {
		n += len(in.marks)
	}
	if n >= maxReruns {
		m.reruns[0].marks = m.reruns[0].marks[1:]
		m.reruns = slices.DeleteFunc(m.reruns, func(in minute) bool { return len(in.marks) == 0 })
	}
	i := slices.IndexFunc(m.reruns, func(in minute) bool { return in.at.Equal(at) })
	if i < 0 {
		i, m.reruns = len(m.reruns), append(m.reruns, minute{at: at})
	}
	m.reruns[i].marks = append(m.reruns[i].marks, k)
}

// startBatch starts a batch and drops expired IDs. If the last batch is not settled and resend
// is set, its outbox is sent again.
func (m *memory) startBatch(now time.Time, resend bool) {
	if b := m.last; len(b.taken) > 0 || len(b.outbox) > 0 {
		m.last = batch{}
		if resend {
			m.last.outbox, b.outbox = b.outbox, nil
		}
		m.unsettled, m.woken = append(m.unsettled, b), now
	}
	if m.isOld(m.woken, now, unsettledTime) {
		m.unsettled = nil
	}
	m.reruns = slices.DeleteFunc(m.reruns, func(in minute) bool { return len(in.marks) == 0 || m.isOld(in.at, now, rerunTime) })
	if len(m.unsettled) == 0 && m.isOld(m.woken, now, rerunTime) {
		m.woken = time.Time{}
	}
}

// isOld reports whether more than within has passed since at, and since a worker last acquired
// the entity.
func (m *memory) isOld(at, now time.Time, within time.Duration) bool {
	return now.Sub(later(at, m.woken)) > within
}

// write writes two members that DurableTask does not have: the memory, and the outbox of the
// last batch.
func (m *memory) write(w *writer) {
	if len(m.last.taken) > 0 || len(m.unsettled) > 0 || len(m.reruns) > 0 || len(m.retries) > 0 || !m.woken.IsZero() {
		w.key("memory")
		w.open()
		w.marks("taken", m.last.taken)
		if len(m.unsettled) > 0 {
			w.list("doubtful", len(m.unsettled), func(i int) {
				w.open()
				w.marks("taken", m.unsettled[i].taken)
				w.messages("outbox", m.unsettled[i].outbox)
				w.close()
			})
		}
		if len(m.reruns) > 0 {
			w.key("repeated")
			w.open()
			for _, in := range m.reruns {
				w.marks(stampText(in.at), in.marks)
			}
			w.close()
		}
		w.marks("signals", m.retries)
		if !m.woken.IsZero() {
			w.time("woken", m.woken)
		}
		w.close()
	}
	w.messages("outbox", m.last.outbox)
}

// UnmarshalJSON decodes a memory.
func (m *memory) UnmarshalJSON(data []byte) error {
	var wire struct {
		Taken    marks `json:"taken"`
		Doubtful []struct {
			Taken  marks         `json:"taken"`
			Outbox []wireMessage `json:"outbox"`
		} `json:"doubtful"`
		Repeated ordered[marks] `json:"repeated"`
		Signals  marks          `json:"signals"`
		Woken    stamp          `json:"woken"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*m = memory{last: batch{taken: wire.Taken}, retries: wire.Signals, woken: wire.Woken.Time}
	for _, b := range wire.Doubtful {
		m.unsettled = append(m.unsettled, batch{taken: b.Taken, outbox: messagesOf(b.Outbox)})
	}
	for _, text := range wire.Repeated.keys {
		at, err := parseStamp(text)
		if err != nil {
			return err
		}
		m.reruns = append(m.reruns, minute{at, wire.Repeated.values[text]})
	}
	return nil
}

// Marks are hashes of IDs with 48 bits; each is eight characters in JSON. The probability that
// an ID has the same mark as one of 5,000 others is 1 in 5*10^10.
type marks []uint64

const markBytes = 6

// mark returns the hash of an ID. It depends on the whole ID, because some kinds of GUIDs start
// with the time.
func mark(id string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, followed by a mixing step
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return (h ^ h>>33) >> (64 - 8*markBytes)
}

// last returns the newest marks, at most n, with no spare capacity.
func (m marks) last(n int) marks {
	if len(m) <= n {
		return slices.Clip(m)
	}
	return slices.Clone(m[len(m)-n:])
}

// UnmarshalJSON decodes marks.
func (m *marks) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	*m = nil
	for ; len(raw) >= markBytes; raw = raw[markBytes:] {
		var k uint64
		for _, b := range raw[:markBytes] {
			k = k<<8 | uint64(b)
		}
		*m = append(*m, k)
	}
	return nil
}
