package entity

import (
	"encoding/json"
	"slices"
	"time"
)

// DefaultReorderWindow is the time that a sorter waits for a request that later ones have overtaken
// (the extension's DurableTaskOptions.cs, EntityMessageReorderWindowInMinutes).
const DefaultReorderWindow = 30 * time.Minute

// sweepInterval is the minimum time between two sweeps, so that not every request causes one
// (DurableTask.Core/Entities/StateFormat/MessageSorter.cs, MinIntervalBetweenCollections).
const sweepInterval = 10 * time.Second

// A Sorter makes requests take effect once, and in the order in which they were sent
// (DurableTask.Core/Entities/StateFormat/MessageSorter.cs). The sender labels each request with
// a time and with the label of the previous request. The receiver buffers a request that
// arrives before its predecessor. Both sides drop labels older than the reorder window.
//
// With a window of zero or less, requests of new senders are not sorted. Senders that are known
// from a time with a window are still sorted, and their duplicates recognized, until the clock
// expires them. In .NET, requests that are buffered when the window is disabled wait forever.
type Sorter struct {
	lastSent       ordered[time.Time]   // by destination
	readings       map[string]time.Time // clock readings for lastSent; not stored
	received       ordered[*source]     // by sender
	receiveHorizon time.Time
	sendHorizon    time.Time
	keepOld        bool // keep senders older than the horizon; not stored
	past           past // senders that are no longer in received
}

// Label labels a request that is sent to destination.
//
// If the clock is behind the last label, as the clock of another worker may be, DurableTask
// uses the last label plus a tick. All attempts at an episode would use that label, perhaps for
// different requests. Here the first label of an attempt also depends on the clock.
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
				at = at.Add(tick + spreadOffset(now, last, window))
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

// The first labels of attempts whose clocks are behind are distributed over spread. If labels
// are more than farAhead ahead of the clock, narrowSpread applies instead. The labels of a
// sender with many episodes must not move away from the clock.
const (
	spread       = 100 * time.Millisecond
	farAhead     = 2 * time.Minute
	narrowSpread = time.Millisecond
)

// spreadOffset returns where in the spread the labels of an attempt start.
func spreadOffset(now, last time.Time, window time.Duration) time.Duration {
	if last.Sub(now) > min(farAhead, window/2) {
		return now.Sub(now.Truncate(narrowSpread))
	}
	return now.Sub(now.Truncate(spread))
}

// LabelPassedOn labels a lock request that is passed on. Receivers do not sort it, so the next
// request must not follow it. In DurableTask the next request follows it, and receivers
// wait although it never arrives.
func (s *Sorter) LabelPassedOn(r *Request, destination string, now time.Time, window time.Duration) {
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

// RecordSent records the label of a request in the history: the next request follows it.
func (s *Sorter) RecordSent(r *Request, destination string) {
	if !r.Timestamp.IsZero() {
		s.lastSent.set(destination, r.Timestamp)
	}
}

// Receive handles a request that arrived, and returns the requests that take effect now, in
// order. Requests of clients, requests with a due time and lock requests from other entities
// are not sorted.
//
// An orchestration whose checkpoint was lost after its messages were sent may send them again
// with other labels. Requests of several executions may also be mixed. DurableTask does not
// handle this; Receive does:
//
//  1. Duplicates are also recognized by their IDs.
//  2. Each attempt of a sender uses labels of its own, which depend on its clock. A request therefore
//     waits until the exact label of its predecessor has arrived, not just a later one; see [run].
//  3. When an execution continues as new, its requests and the next execution's requests may arrive
//     mixed, and the clock of the next may be behind. Each execution therefore has an order of its
//     own. In .NET a late request of an ended execution makes the requests of the next wait for the
//     whole window.
func (s *Sorter) Receive(r *Request, window time.Duration) (deliver []*Request) {
	from, ok := s.received.get(r.Parent)
	switch {
	case window <= 0 && r.Parent != "" && s.past.has(mark(r.key())):
		return nil
	case !r.isLabeled() && window <= 0 && ok:
		return from.add(&from.run, r, nil)
	case !r.isLabeled() || window <= 0 && !ok:
		return []*Request{r}
	case window > 0 && s.receiveHorizon.Add(window+sweepInterval).Before(r.Timestamp):
		s.receiveHorizon = r.Timestamp.Add(-window)
		deliver = s.sweep()
		from, ok = s.received.get(r.Parent)
	}
	switch {
	case r.Timestamp.Before(s.receiveHorizon) && (ok && from.has(r) || s.past.has(mark(r.key()))):
		return deliver
	case r.Timestamp.Before(s.receiveHorizon):
		return append(deliver, r)
	case !ok:
		from = &source{run: run{execution: r.ParentExecution}}
		s.received.set(r.Parent, from)
	}
	e := from.runOf(r.ParentExecution)
	if e == nil {
		e, deliver = from.startRun(r, deliver)
	}
	s.past.recall(e, r)
	switch {
	case e.has(r.Timestamp) && from.knows(e, r):
		return deliver
	case e.waits(r.Predecessor, s.receiveHorizon):
		e.hold(r, from.knows(e, r))
		return deliver
	}
	deliver = from.accept(e, r, s.receiveHorizon, deliver)
	return from.deliverReady(e, s.receiveHorizon, deliver)
}

// expire drops entries by the clock after the window was disabled. It returns the requests that
// need not wait any longer.
func (s *Sorter) expire(now time.Time) (deliver []*Request) {
	horizon := now.Add(-DefaultReorderWindow)
	s.sendHorizon = time.Time{}
	s.lastSent.deleteFunc(func(at time.Time) bool { return at.Before(horizon) })
	if s.receiveHorizon.Add(sweepInterval).Before(horizon) {
		s.receiveHorizon = horizon
		deliver = s.sweep()
	}
	if len(s.received.keys) == 0 && s.past.horizon().IsZero() {
		s.receiveHorizon = time.Time{}
	}
	return deliver
}

// RecordPassedOn records the label of a lock request that another entity passed on. It is not
// sorted. In DurableTask the next request of that entity follows it, and DurableTask's receivers
// buffer that request for the whole window. Recording the label avoids this.
func (s *Sorter) RecordPassedOn(r *Request, by string) (deliver []*Request) {
	from, ok := s.received.get(by)
	if !ok {
		return nil
	}
	e := &from.run
	e.addLink(link{r.Timestamp, r.Predecessor})
	return from.deliverReady(e, s.receiveHorizon, nil)
}

// sweep drops labels older than the horizon. It returns the requests that need not wait any
// longer.
func (s *Sorter) sweep() (deliver []*Request) {
	for _, key := range s.received.keys {
		from := s.received.values[key]
		for _, e := range from.runs() {
			deliver = from.deliverReady(e, s.receiveHorizon, deliver)
			e.forgetBefore(s.receiveHorizon)
		}
	}
	s.forgetSenders()
	return deliver
}

// forgetSenders drops senders and executions that are older than the horizon.
func (s *Sorter) forgetSenders() {
	if s.keepOld {
		return
	}
	s.past.forgetBefore(s.receiveHorizon)
	s.received.deleteFunc(func(from *source) bool {
		from.others = slices.DeleteFunc(from.others, (*run).isOver)
		return from.isOver() && len(from.others) == 0
	})
}

// prune drops IDs that no sender sends again, and limits the number of entries. After another
// worker acquired the entity, it keeps old senders for a while: they may not have run since the
// entity last ran.
func (s *Sorter) prune(m *memory, now time.Time, most limits) {
	for _, from := range s.received.values {
		if m.isOld(from.last, now, rerunTime) {
			for _, e := range from.runs() {
				e.recent = e.recent.last(keepCommitted)
			}
		}
	}
	s.keepOld = !m.isOld(m.woken, now, rerunTime)
	s.forgetSenders()
	s.archive(most)
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
	horizon := later(s.receiveHorizon, s.past.horizon())
	if !horizon.IsZero() {
		w.time("ReceiveHorizon", horizon)
	}
	if !s.sendHorizon.IsZero() {
		w.time("SendHorizon", s.sendHorizon)
	}
	if horizon.After(s.receiveHorizon) {
		w.time("horizon", s.receiveHorizon)
	}
	s.past.write(w)
	w.close()
}

// UnmarshalJSON decodes a sorter.
func (s *Sorter) UnmarshalJSON(data []byte) error {
	var wire struct {
		LastSentToInstance   ordered[stamp]
		ReceivedFromInstance ordered[*source]
		ReceiveHorizon       stamp
		SendHorizon          stamp
		Horizon              *stamp         `json:"horizon"`
		Past                 ordered[marks] `json:"past"`
		Forgotten            stamp          `json:"forgotten"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*s = Sorter{receiveHorizon: wire.ReceiveHorizon.Time, sendHorizon: wire.SendHorizon.Time}
	if wire.Horizon != nil {
		s.receiveHorizon = wire.Horizon.Time
	}
	var err error
	if s.past, err = pastOf(wire.Past, wire.Forgotten.Time); err != nil {
		return err
	}
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

// archive moves the senders that have been quiet for longest to the past, if there are too
// many.
func (s *Sorter) archive(most limits) {
	if s.keepOld || len(s.received.keys) <= 2*most.senders {
		return
	}
	var quiet []string
	for _, sender := range s.received.keys {
		if s.received.values[sender].isQuiet() {
			quiet = append(quiet, sender)
		}
	}
	slices.SortStableFunc(quiet, func(a, b string) int {
		return s.received.values[a].last.Compare(s.received.values[b].last)
	})
	gone := make(map[*source]bool)
	for _, sender := range quiet[:max(0, len(quiet)-most.senders)] {
		from := s.received.values[sender]
		s.past.add(sender, from)
		gone[from] = true
	}
	s.received.deleteFunc(func(from *source) bool { return gone[from] })
	s.past.limit(most.marks)
}
