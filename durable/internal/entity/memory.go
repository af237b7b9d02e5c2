package entity

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"
)

// A reason is why a message may come again after it took effect. It says how long the
// message's ID is remembered. Each reason has a limit of its own: a burst for one makes
// nothing forgotten that is remembered for another.
type reason int

const (
	redelivery reason = iota // its message was not deleted: until the batch is settled, or unsettledTime
	rerun                    // its sender runs again, because its checkpoint was lost: rerunTime
	retry                    // a client's library sends again: the last mostRetries
)

// Times count from when a message came or, if that is later, from when a worker took the
// entity over that does not know whether the last batch is settled: while no worker
// runs, nothing comes.
const (
	// A message is redelivered after its visibility timeout, by default 5 minutes, and
	// after what is in the queue before it.
	unsettledTime = time.Hour
	// A sender runs again after the visibility timeout of its messages.
	rerunTime = 15 * time.Minute

	mostReruns  = 2048
	mostRetries = 128
)

// A memory has the IDs of what took effect, and the outboxes of unsettled batches.
type memory struct {
	last      batch   // the one that came to this State
	unsettled []batch // before last
	reruns    []minute
	retries   marks
	woken     time.Time // when an unsettled batch was last found
}

// A batch is what is remembered of one until it is settled: see [State.Settle].
type batch struct {
	taken  marks
	outbox []Message
}

// A minute has the marks of one minute.
type minute struct {
	at    time.Time
	marks marks
}

// knows reports whether something with an ID has taken effect. If that was in an
// unsettled batch, its outbox is sent again: the batch's messages are deleted after
// its outbox is sent.
func (m *memory) knows(id string) bool {
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

// take remembers an ID until the batch is settled, and for why.
func (m *memory) take(id string, why reason, now time.Time) {
	k := mark(id)
	m.last.taken = append(m.last.taken, k)
	switch {
	case why == retry:
		m.retries = append(m.retries.last(mostRetries-1), k)
	case why == rerun && !m.mayRerun(k):
		m.takeRerun(k, now.Truncate(time.Minute).Add(time.Minute))
	}
}

func (m *memory) takeRerun(k uint64, at time.Time) {
	n := 0
	for _, in := range m.reruns {
		n += len(in.marks)
	}
	if n >= mostReruns {
		m.reruns[0].marks = m.reruns[0].marks[1:]
		m.reruns = slices.DeleteFunc(m.reruns, func(in minute) bool { return len(in.marks) == 0 })
	}
	i := slices.IndexFunc(m.reruns, func(in minute) bool { return in.at.Equal(at) })
	if i < 0 {
		i, m.reruns = len(m.reruns), append(m.reruns, minute{at: at})
	}
	m.reruns[i].marks = append(m.reruns[i].marks, k)
}

// begin begins a batch and forgets what is old. If resend is set and the last batch is
// not settled, its outbox is sent again.
func (m *memory) begin(now time.Time, resend bool) {
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

// isOld reports whether something came longer ago than within, and a worker has had the
// entity for longer.
func (m *memory) isOld(at, now time.Time, within time.Duration) bool {
	return now.Sub(later(at, m.woken)) > within
}

// write writes two members that DurableTask does not have: the memory, and the outbox
// of the last batch.
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

// UnmarshalJSON reads a memory.
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

// Marks are hashes of IDs: 48 bits each, in JSON eight characters. Among five thousand,
// one ID is taken for another with a chance of one in fifty thousand million.
type marks []uint64

const markBytes = 6

// mark returns the hash of an ID. It depends on all of the ID: some kinds of GUIDs
// begin with the time.
func mark(id string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, and then the bits are mixed
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return (h ^ h>>33) >> (64 - 8*markBytes)
}

// last returns the newest marks, at most n, without capacity for more.
func (m marks) last(n int) marks {
	if len(m) <= n {
		return slices.Clip(m)
	}
	return slices.Clone(m[len(m)-n:])
}

// UnmarshalJSON reads marks.
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
