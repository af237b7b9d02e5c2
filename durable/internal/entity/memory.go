package entity

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"
)

// How long is remembered what came, counted from when it came or, if that is
// later, from when a worker took the entity up that does not know what became of
// the last batch: while nobody works on a hub, nothing comes.
const (
	// doubtTime is that of messages which nobody knows to be deleted. A message
	// comes again once its lock has ended, which by default is 5 minutes, and
	// what is in the queue before it is worked off.
	doubtTime = time.Hour
	// repeatTime is that of what its sender may send again: the checkpoint that
	// it was sent with was lost, and the sender runs again once the lock of its
	// messages has ended.
	repeatTime = 15 * time.Minute
)

// How much is remembered at most besides what the last batch took.
const (
	mostRepeated = 2048 // of what its sender may send again
	mostSignals  = 128  // of clients, whose library may send one twice
)

// A memory knows requests that took effect, and releases, by their IDs. It
// begins to forget a batch once that is settled: see [State.Settle].
type memory struct {
	taken    marks      // by the last batch
	doubtful []doubt    // the batches before that nobody knows to be settled
	repeated []agedMark // what senders may send again, the oldest first
	signals  marks      // the last of clients
	woken    time.Time  // when a batch was last found that nobody knows to be settled
	fresh    bool       // the last of doubtful is the last batch
}

// A doubt is a batch of which it is not known whether all that it sent was sent,
// and all that it took was deleted.
type doubt struct {
	taken  marks
	outbox []Message
	undone bool // something that it took came again: it was not settled
}

type agedMark struct {
	mark uint64
	at   time.Time
}

// comesAgain reports whether what comes with an ID came before. If a batch took it
// that nobody knows to be settled, then that was not.
func (m *memory) comesAgain(id string) bool {
	k := mark(id)
	known := slices.Contains(m.taken, k)
	for i := range m.doubtful {
		if slices.Contains(m.doubtful[i].taken, k) {
			m.doubtful[i].undone = true
			known = true
		}
	}
	return known || slices.Contains(m.signals, k) ||
		slices.ContainsFunc(m.repeated, func(r agedMark) bool { return r.mark == k })
}

// take remembers what a batch takes.
func (m *memory) take(id string) { m.taken = append(m.taken, mark(id)) }

// takeSignal remembers a client's signal.
func (m *memory) takeSignal(id string) {
	m.take(id)
	m.signals = append(m.signals.last(mostSignals-1), mark(id))
}

// takeRepeated remembers what may be sent again, in other messages.
func (m *memory) takeRepeated(id string, now time.Time) {
	m.take(id)
	m.repeat(mark(id), now)
}

func (m *memory) repeat(mark uint64, now time.Time) {
	if slices.ContainsFunc(m.repeated, func(r agedMark) bool { return r.mark == mark }) {
		return
	}
	now = now.Truncate(time.Minute).Add(time.Minute) // many have their time in common
	if len(m.repeated) >= mostRepeated {
		m.repeated = slices.Clone(m.repeated[len(m.repeated)-mostRepeated+1:])
	}
	// Workers' clocks differ: what has one time in common must be in one place.
	i, _ := slices.BinarySearchFunc(m.repeated, now.Add(1), func(r agedMark, at time.Time) int { return r.at.Compare(at) })
	m.repeated = slices.Insert(m.repeated, i, agedMark{mark, now})
}

// begin begins a batch. Unless the last one is settled it may not be; what it
// was to send is sent.
func (m *memory) begin(now time.Time, sent []Message) {
	m.fresh = len(m.taken) > 0 || len(sent) > 0
	if m.fresh {
		m.doubtful = append(m.doubtful, doubt{taken: m.taken, outbox: sent})
		m.taken, m.woken = nil, now
	}
	if m.since(m.woken, now) > doubtTime {
		m.doubtful = nil
	}
	m.repeated = slices.DeleteFunc(m.repeated, func(r agedMark) bool { return m.since(r.at, now) > repeatTime })
	if len(m.doubtful) == 0 && m.since(m.woken, now) > repeatTime {
		m.woken = time.Time{}
	}
}

// since returns how long ago something was while there was somebody to work on
// the entity.
func (m *memory) since(at, now time.Time) time.Duration {
	if m.woken.After(at) {
		at = m.woken
	}
	return now.Sub(at)
}

// unsent takes out what may not have been sent by batches that were not settled
// or, if lastToo is set, by the last one.
func (m *memory) unsent(lastToo bool) (out []Message) {
	for i := range m.doubtful {
		if d := &m.doubtful[i]; d.undone || lastToo && m.fresh && i == len(m.doubtful)-1 {
			out = append(out, d.outbox...)
			d.outbox = nil
		}
	}
	return out
}

func (m *memory) isEmpty() bool {
	return len(m.taken) == 0 && len(m.doubtful) == 0 && len(m.repeated) == 0 && len(m.signals) == 0 && m.woken.IsZero()
}

// write writes a member of which DurableTask knows nothing.
func (m *memory) write(w *writer) {
	if m.isEmpty() {
		return
	}
	w.key("memory")
	w.open()
	w.marks("taken", m.taken)
	if len(m.doubtful) > 0 {
		w.list("doubtful", len(m.doubtful), func(i int) {
			w.open()
			w.marks("taken", m.doubtful[i].taken)
			w.messages("outbox", m.doubtful[i].outbox)
			w.close()
		})
	}
	m.writeRepeated(w)
	w.marks("signals", m.signals)
	if !m.woken.IsZero() {
		w.time("woken", m.woken)
	}
	w.close()
}

// writeRepeated writes marks by the time at which they were made, which many
// have in common.
func (m *memory) writeRepeated(w *writer) {
	if len(m.repeated) == 0 {
		return
	}
	w.key("repeated")
	w.open()
	for rest := m.repeated; len(rest) > 0; {
		n := 0
		var same marks
		for n < len(rest) && rest[n].at.Equal(rest[0].at) {
			same = append(same, rest[n].mark)
			n++
		}
		w.marks(stampText(rest[0].at), same)
		rest = rest[n:]
	}
	w.close()
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
	*m = memory{taken: wire.Taken, signals: wire.Signals, woken: wire.Woken.Time}
	for _, d := range wire.Doubtful {
		m.doubtful = append(m.doubtful, doubt{taken: d.Taken, outbox: messagesOf(d.Outbox)})
	}
	for _, text := range wire.Repeated.keys {
		at, err := parseStamp(text)
		if err != nil {
			return err
		}
		for _, k := range wire.Repeated.values[text] {
			m.repeated = append(m.repeated, agedMark{k, at})
		}
	}
	return nil
}

// Marks are what IDs are remembered by: 48 bits of each, in JSON a text of eight
// characters for each. That one ID is taken for another is as likely as one in
// fifty thousand million, if five thousand are remembered.
type marks []uint64

const markBytes = 6

// mark returns what an ID is remembered by. It depends on all of the ID: some
// kinds of GUIDs begin with the time.
func mark(id string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, and then the bits are mixed
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return (h ^ h>>33) >> (64 - 8*markBytes)
}

// last returns at most n marks, the newest. What is appended to them goes
// nowhere else.
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
