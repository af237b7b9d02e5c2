package entity

import (
	"encoding/json"
	"slices"
	"time"
)

// DefaultReorderWindow is how long a sorter waits for a request that others have
// overtaken (the extension's DurableTaskOptions.cs,
// EntityMessageReorderWindowInMinutes).
const DefaultReorderWindow = 30 * time.Minute

// sweepInterval is the least time between two sweeps, so that not every request
// makes one (DurableTask.Core/Entities/StateFormat/MessageSorter.cs,
// MinIntervalBetweenCollections).
const sweepInterval = 10 * time.Second

// A Sorter lets requests take effect in the order in which they were sent, and
// once (DurableTask.Core/Entities/StateFormat/MessageSorter.cs). Senders label each
// request with a time and that of the request before; receivers buffer a request
// that comes before its predecessor. Both forget what is older than the reorder
// window.
//
// With a window of zero or less, requests of new senders are not sorted. Those of senders
// that are known from when there was a window are, so that what waits takes effect in its
// turn, and known IDs are known, until the senders are forgotten by the clock. In .NET
// what waits then waits for ever.
type Sorter struct {
	lastSent       ordered[time.Time]   // by destination
	readings       map[string]time.Time // of the clock for lastSent; not stored
	received       ordered[*source]     // by sender
	receiveHorizon time.Time
	sendHorizon    time.Time
	keeps          bool // senders older than the horizon; not stored
	past           past // of senders that are not in received
}

// Label labels a request that is sent to destination.
//
// If the clock is behind the last label, as another worker's may be, the label is a
// tick after the last in DurableTask. Attempts of one episode would all give that
// label, maybe to different requests. So here their first labels also depend on the
// clock.
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

// The first labels of attempts whose clocks are behind are spread over this long, and
// over less if labels are far ahead of the clock already: those of a sender with many
// episodes must not run away from it.
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

// LabelPassed labels a lock request that is passed on. Receivers do not sort it, so
// the next request must not follow it. In DurableTask it does, and receivers wait for
// it in vain.
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

// Sent records the label of a request that was sent: the next one follows it.
func (s *Sorter) Sent(r *Request, destination string) {
	if !r.Timestamp.IsZero() {
		s.lastSent.set(destination, r.Timestamp)
	}
}

// Receive takes a request that came, and returns those that take effect now, in
// order. Requests of clients and locks that were passed on are not sorted.
//
// Beyond DurableTask, an orchestration whose checkpoint was lost after its messages
// were sent may send them again with other labels, and requests of several executions
// may be mixed:
//
//  1. A duplicate is recognised by its ID, too.
//  2. Each attempt of a sender gives its requests labels of its own, which depend on
//     its clock. So a request waits until the very label of its predecessor came, and
//     not just a later one: see [run].
//  3. When an execution continues as new, its requests and those of the next may come
//     mixed, and the clock of the next may be behind. Each execution has an order of
//     its own. In .NET a late request of an execution that is over makes those of the
//     next wait for as long as the window.
func (s *Sorter) Receive(r *Request, window time.Duration) (deliver []*Request) {
	from, ok := s.received.get(r.Parent)
	switch {
	case window <= 0 && r.Parent != "" && s.past.has(mark(r.key())):
		return nil
	case !r.isLabelled() && window <= 0 && ok:
		return from.add(&from.run, r, nil)
	case !r.isLabelled() || window <= 0 && !ok:
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
	of := from.of(r.ParentExecution)
	if of == nil {
		of, deliver = from.begin(r, deliver)
	}
	s.past.recall(of, r)
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

// leave forgets, by the clock, what the Sorter knows from when there was a window. It
// returns the requests that need not wait any more.
func (s *Sorter) leave(now time.Time) (deliver []*Request) {
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

// Passed records a lock request that an entity passed on. It is not sorted, but in
// DurableTask the next request of that entity follows it, which receivers of
// DurableTask buffer for as long as the window. Ours have none follow it.
func (s *Sorter) Passed(r *Request, by string) (deliver []*Request) {
	from, ok := s.received.get(by)
	if !ok {
		return nil
	}
	of := &from.run
	of.holdLink(link{r.Timestamp, r.Predecessor})
	return from.follow(of, s.receiveHorizon, nil)
}

// sweep forgets what is older than the horizon, and returns the requests that need
// not wait any more.
func (s *Sorter) sweep() (deliver []*Request) {
	for _, key := range s.received.keys {
		from := s.received.values[key]
		for _, of := range from.runs() {
			deliver = from.follow(of, s.receiveHorizon, deliver)
			of.forgetBefore(s.receiveHorizon)
		}
	}
	s.forgetSenders()
	return deliver
}

// forgetSenders forgets senders and executions that are older than the horizon.
func (s *Sorter) forgetSenders() {
	if s.keeps {
		return
	}
	s.past.forgetBefore(s.receiveHorizon)
	s.received.deleteFunc(func(from *source) bool {
		from.others = slices.DeleteFunc(from.others, (*run).isOver)
		return from.isOver() && len(from.others) == 0
	})
}

// forget forgets IDs that no sender sends again. It keeps old senders for a while after
// another worker took the entity over: they may not have run for as long as it did not.
func (s *Sorter) forget(m *memory, now time.Time, most limits) {
	for _, from := range s.received.values {
		if m.isOld(from.last, now, rerunTime) {
			for _, of := range from.runs() {
				of.recent = of.recent.last(recentOfRun)
			}
		}
	}
	s.keeps = !m.isOld(m.woken, now, rerunTime)
	s.forgetSenders()
	s.remember(most)
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

// UnmarshalJSON reads a sorter.
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

// remember puts senders into the past that have been quiet for longest, if there are many.
func (s *Sorter) remember(most limits) {
	if s.keeps || len(s.received.keys) <= 2*most.senders {
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
