package entity

import (
	"encoding/json"
	"time"
)

// DefaultReorderWindow is how long a sorter waits for a request that others
// came before (the extension's DurableTaskOptions.cs,
// EntityMessageReorderWindowInMinutes).
const DefaultReorderWindow = 30 * time.Minute

// sweepInterval is how much later than it could a sorter forgets, so that it
// does not do so at every request
// (DurableTask.Core/Entities/StateFormat/MessageSorter.cs,
// MinIntervalBetweenCollections).
const sweepInterval = 10 * time.Second

// A Sorter lets requests take effect in the order in which they were sent, and
// once (DurableTask.Core/Entities/StateFormat/MessageSorter.cs). Those who send
// label each request with a time and that of the request before; those who
// receive hold back what comes before its predecessor. Both forget what is older
// than the reorder window.
//
// A window of zero or less means that nothing is sorted.
type Sorter struct {
	lastSent       ordered[time.Time]   // by destination
	readings       map[string]time.Time // of the clock, at which that was labelled; not stored
	received       ordered[*source]     // by sender
	receiveHorizon time.Time
	sendHorizon    time.Time
	forgotten      marks // of senders that were forgotten, until handOver
}

// Label labels a request that is sent to destination.
//
// A clock that is behind the last label, as another worker's may be, does not count.
// DurableTask gives the label that is a tick after the last then. Attempts of one
// episode would all give that, but maybe to different requests. So the first label
// has something of the clock's reading, too.
func (s *Sorter) Label(r *Request, destination string, now time.Time, window time.Duration) {
	if window <= 0 {
		return
	}
	if s.sendHorizon.Add(window + sweepInterval).Before(now) {
		s.sendHorizon = now.Add(-window)
		s.lastSent.deleteFunc(func(at time.Time) bool { return at.Before(s.sendHorizon) })
	}
	at := now
	if last, ok := s.lastSent.get(destination); ok {
		r.Predecessor = last
		if !at.After(last) {
			at = last.Add(tick).In(zoneless)
			if !s.readings[destination].Equal(now) {
				at = at.Add(tick + placeOf(now, last, window))
			}
		}
	}
	r.Timestamp = at
	s.lastSent.set(destination, at)
	if s.readings == nil {
		s.readings = make(map[string]time.Time)
	}
	s.readings[destination] = now
}

// The first labels of attempts whose clocks are behind are spread over so long. If
// labels are far ahead of the clock already it is not as long, so that those of one
// who has many episodes do not run away from it.
const (
	spread       = 100 * time.Millisecond
	farAhead     = 2 * time.Minute
	narrowSpread = time.Millisecond
)

// placeOf returns where in the spread the labels of an attempt begin.
func placeOf(now, last time.Time, window time.Duration) time.Duration {
	if last.Sub(now) > min(farAhead, window/2) {
		return now.Sub(now.Truncate(narrowSpread))
	}
	return now.Sub(now.Truncate(spread))
}

// LabelPassed labels a lock request that is passed on. Since receivers do not
// sort it, what is sent next must not follow it: DurableTask has it do so, and
// receivers wait for it in vain.
func (s *Sorter) LabelPassed(r *Request, destination string, now time.Time, window time.Duration) {
	if window <= 0 {
		return
	}
	r.Timestamp = now
	if last, ok := s.lastSent.get(destination); ok {
		r.Predecessor = last
		if !now.After(last) {
			r.Timestamp = last.Add(tick).In(zoneless)
		}
	}
}

// Sent notes that a request was sent with its label: what the next one follows.
func (s *Sorter) Sent(r *Request, destination string) {
	if !r.Timestamp.IsZero() {
		s.lastSent.set(destination, r.Timestamp)
	}
}

// Receive takes a request that came, and returns those that are to take effect
// now, in order. Requests of clients and locks that were forwarded are not
// sorted.
//
// Beyond DurableTask, it is known that an orchestration whose checkpoint was
// lost after its messages were sent sends them again, with other labels, and that
// messages of several executions may meet:
//
//  1. A request that came before is known by its ID, too.
//  2. Each attempt of a sender gives its requests labels of its own, and no two
//     follow from one another but by their clocks, which differ. So a request waits
//     until that came whose label is its predecessor, and not only one with a later
//     label: see [run].
//  3. The requests of several executions, of which one continued as the next, may
//     meet, and the next one's labels may be from a clock that is behind. Each
//     execution's are in an order of their own. In .NET a late request of an
//     execution that is over has those of the next wait for as long as the window.
func (s *Sorter) Receive(r *Request, window time.Duration) (deliver []*Request) {
	if !sorts(r, window) {
		return []*Request{r}
	}
	if s.receiveHorizon.Add(window + sweepInterval).Before(r.Timestamp) {
		s.receiveHorizon = r.Timestamp.Add(-window)
		deliver = s.sweep()
	}
	if r.Timestamp.Before(s.receiveHorizon) {
		return append(deliver, r)
	}
	from, ok := s.received.get(r.Parent)
	if !ok {
		from = &source{run: run{execution: r.ParentExecution}}
		s.received.set(r.Parent, from)
	}
	of := from.of(r.ParentExecution)
	if of == nil {
		of, deliver = from.begin(r, deliver)
	}
	switch {
	case of.has(r.Timestamp) && from.knows(of, r):
		return deliver
	case of.waits(r.Predecessor, s.receiveHorizon):
		of.hold(r, from.knows(of, r))
		return deliver
	}
	deliver = from.take(of, r, s.receiveHorizon, deliver)
	return from.follow(of, s.receiveHorizon, deliver)
}

// sorts reports whether a request has a place in an order. One without a label
// has none, although .NET takes it for one that came before.
func sorts(r *Request, window time.Duration) bool {
	return window > 0 && r.Parent != "" && r.Position == 0 && r.Due.IsZero() && !r.Timestamp.IsZero()
}

// knows reports whether r came before, as far as is remembered.
func (s *Sorter) knows(r *Request) bool {
	from, ok := s.received.get(r.Parent)
	if !ok {
		return false
	}
	of := from.of(r.ParentExecution)
	if of == nil {
		of = new(run)
	}
	return from.knows(of, r)
}

// Passed takes note of a lock that an entity passed on. It has a place in what
// that entity sends, although it is not sorted: what is sent after it follows it.
// DurableTask takes no note, and holds that back for as long as the window.
//
// A sender of ours does not have the next request follow it.
func (s *Sorter) Passed(r *Request, by string) (deliver []*Request) {
	from, ok := s.received.get(by)
	if !ok {
		return nil
	}
	of := &from.run
	of.holdLink(link{r.Timestamp, r.Predecessor})
	return from.follow(of, s.receiveHorizon, nil)
}

// sweep forgets what is older than the horizon, and returns what need not wait
// any more.
func (s *Sorter) sweep() (deliver []*Request) {
	for _, key := range s.received.keys {
		from := s.received.values[key]
		for _, of := range from.runs() {
			deliver = from.follow(of, s.receiveHorizon, deliver)
			of.forgetBefore(s.receiveHorizon)
		}
		s.forgotten = append(s.forgotten, from.forgetOthers()...)
	}
	s.received.deleteFunc(func(from *source) bool {
		if !from.isOver() || len(from.others) > 0 {
			return false
		}
		s.forgotten = append(append(s.forgotten, from.recent...), from.before...)
		return true
	})
	return deliver
}

// handOver has m remember for a while what was known of senders that the sorter
// has forgotten, if the entity was taken up after a time in which nobody may have
// worked on the senders, either.
func (s *Sorter) handOver(m *memory, now time.Time) {
	if now.Sub(m.woken) <= repeatTime {
		for _, k := range s.forgotten {
			m.repeat(k, now)
		}
	}
	s.forgotten = nil
}

// forget forgets what no sender sends again.
func (s *Sorter) forget(m *memory, now time.Time) {
	for _, from := range s.received.values {
		if m.since(from.last, now) > repeatTime {
			for _, of := range from.runs() {
				of.recent = of.recent.last(recentOfRun)
			}
		}
	}
}

func (s *Sorter) write(w *writer) {
	w.open()
	if len(s.lastSent.keys) > 0 {
		w.key("LastSentToInstance")
		w.open()
		for _, to := range s.lastSent.keys {
			w.time(to, s.lastSent.values[to])
		}
		w.close()
	}
	if len(s.received.keys) > 0 {
		w.key("ReceivedFromInstance")
		w.open()
		for _, from := range s.received.keys {
			w.key(from)
			s.received.values[from].write(w)
		}
		w.close()
	}
	if !s.receiveHorizon.IsZero() {
		w.time("ReceiveHorizon", s.receiveHorizon)
	}
	if !s.sendHorizon.IsZero() {
		w.time("SendHorizon", s.sendHorizon)
	}
	w.close()
}

// UnmarshalJSON reads a sorter.
func (s *Sorter) UnmarshalJSON(data []byte) error {
	var wire struct {
		LastSentToInstance   ordered[stamp]
		ReceivedFromInstance ordered[*source]
		ReceiveHorizon       stamp
		SendHorizon          stamp
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*s = Sorter{receiveHorizon: wire.ReceiveHorizon.Time, sendHorizon: wire.SendHorizon.Time}
	for _, to := range wire.LastSentToInstance.keys {
		s.lastSent.set(to, wire.LastSentToInstance.values[to].Time)
	}
	for _, from := range wire.ReceivedFromInstance.keys {
		if known := wire.ReceivedFromInstance.values[from]; known != nil {
			s.received.set(from, known)
		}
	}
	return nil
}
