package entity

import (
	"slices"
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

// How many of a sender's requests are remembered by their IDs, see
// [Sorter.Receive]: all that were sent since one is known to be in the sender's
// history, but not more than mostFromSender, and at least recentFromSender.
const (
	recentFromSender = 32
	mostFromSender   = 10_000
)

// A Sorter lets requests take effect in the order in which they were sent, and
// once (DurableTask.Core/Entities/StateFormat/MessageSorter.cs). Those who send
// label each request with a time and that of the request before; those who
// receive hold back what comes before its predecessor. Both forget what is older
// than the reorder window.
//
// A window of zero or less means that nothing is sorted.
type Sorter struct {
	lastSent       ordered[time.Time] // by destination
	received       ordered[*source]   // by sender
	receiveHorizon time.Time
	sendHorizon    time.Time
	forgotten      marks // of senders that were forgotten, until handOver
}

// A source is what is known of one sender.
type source struct {
	run           // of the execution that is the last, as it seems
	others []*run // of others, which have not ended for long or have just begun
	recent marks  // of what was delivered last
	// over is the last label that was delivered of executions of which nothing else
	// is known any more.
	over time.Time
}

// A run is what is known of one execution of a sender.
type run struct {
	last      time.Time // the label of what was delivered last; zero if nothing was
	old       time.Time // the last label of which not all IDs may be known any more
	execution string
	buffered  []*Request // in the order of their labels
	// late says that requests of it may have taken effect long ago which nobody
	// remembers, so that nothing waits for them: the first that is known is not its
	// first, and not newer than those of the last execution, or may be of one that was
	// forgotten.
	late bool
	// passed is the label of a lock that was passed on when all before it had been
	// delivered. Requests may follow it, but it makes none old: a sender of ours
	// gives the next one a label that need not be after it.
	passed time.Time
}

// otherRuns is how many executions of a sender are known besides the last.
const otherRuns = 4

// Label labels a request that is sent to destination.
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
		}
	}
	r.Timestamp = at
	s.lastSent.set(destination, at)
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
//  2. The requests of several executions, of which one continued as the next, may
//     meet, and the next one's labels may be from a clock that is behind. Each
//     execution's are in an order of their own. In .NET a late request of an
//     execution that is over has those of the next wait for as long as the window.
//  3. Requests that are held back although the next one does not follow them are
//     of an attempt that was lost. What counts of them comes again.
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
	case of.late:
		of.last = later(of.last, r.Timestamp)
		return from.add(r, deliver)
	case !r.Timestamp.After(of.last) && from.knows(of, r):
		return deliver
	case s.waits(of, r):
		of.hold(r)
		return deliver
	}
	return s.follow(from, of, s.deliver(from, of, r, deliver))
}

// of returns what is known of an execution, nil if nothing is.
func (from *source) of(execution string) *run {
	if from.execution == execution {
		return &from.run
	}
	for _, o := range from.others {
		if o.execution == execution {
			return o
		}
	}
	return nil
}

// begin begins to take note of the execution that r is of. What is held back of the
// one that is forgotten instead is appended: it is all there will be.
func (from *source) begin(r *Request, deliver []*Request) (*run, []*Request) {
	var forgotten []*Request
	if len(from.others) == otherRuns {
		forgotten = from.forgetRun()
	}
	isLast := r.Timestamp.After(from.last)
	of := &run{execution: r.ParentExecution}
	if r.Predecessor.IsZero() {
		of.late = !r.Timestamp.After(from.over)
	} else {
		of.late = !isLast || !r.Predecessor.After(from.over)
	}
	if isLast {
		from.others = append(from.others, new(from.run))
		from.run, of = *of, &from.run
		from.forgetIDs(recentFromSender)
	} else {
		from.others = append(from.others, of)
	}
	for _, b := range forgotten {
		deliver = from.add(b, deliver)
	}
	return of, deliver
}

// forgetRun forgets the oldest execution but the last of which nothing is held
// back, or else the oldest, and returns what is held back of that.
func (from *source) forgetRun() (buffered []*Request) {
	i := max(0, slices.IndexFunc(from.others, func(o *run) bool { return len(o.buffered) == 0 }))
	first := from.others[i]
	from.others = slices.Delete(from.others, i, i+1)
	from.over = later(from.over, first.last)
	for _, b := range first.buffered {
		from.over = later(from.over, b.Timestamp)
	}
	return first.buffered
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

// knows reports whether r came before: by its ID or, if that may have been
// forgotten, by its label. A label alone does not tell: an attempt that was lost may
// have had those of a clock that is ahead of the one that counts.
func (from *source) knows(of *run, r *Request) bool {
	return !of.late && !r.Timestamp.After(of.old) || slices.Contains(from.recent, mark(r.ID))
}

// forgetIDs forgets all but the last n of what was delivered.
func (from *source) forgetIDs(n int) {
	if len(from.recent) <= n {
		return
	}
	from.recent = from.recent.last(n)
	from.old = from.last
	for _, o := range from.others {
		o.old = o.last
	}
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
		if len(from.recent) > recentFromSender && m.since(from.last, now) > repeatTime {
			from.forgetIDs(recentFromSender)
		}
	}
}

// sorts reports whether a request has a place in an order. One without a label
// has none, although .NET takes it for one that came before.
func sorts(r *Request, window time.Duration) bool {
	return window > 0 && r.Parent != "" && r.Position == 0 && r.Due.IsZero() && !r.Timestamp.IsZero()
}

// sweep forgets what is older than the horizon, and returns what need not wait
// any more.
func (s *Sorter) sweep() (deliver []*Request) {
	for _, key := range s.received.keys {
		from := s.received.values[key]
		for _, of := range append(slices.Clone(from.others), &from.run) {
			if of.last.Before(s.receiveHorizon) {
				of.last = time.Time{}
			}
			deliver = s.follow(from, of, deliver)
		}
		from.others = slices.DeleteFunc(from.others, (*run).isOver)
	}
	s.received.deleteFunc(func(from *source) bool {
		if !from.isOver() || len(from.others) > 0 {
			return false
		}
		s.forgotten = append(s.forgotten, from.recent...)
		return true
	})
	return deliver
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isOver reports whether there is nothing to remember.
func (of *run) isOver() bool { return of.last.IsZero() && len(of.buffered) == 0 }

// waits reports whether r's predecessor is yet to come.
func (s *Sorter) waits(of *run, r *Request) bool {
	return r.Predecessor.After(later(of.last, of.passed)) && !r.Predecessor.Before(s.receiveHorizon)
}

// follow appends what was held back and has nothing more to wait for.
func (s *Sorter) follow(from *source, of *run, deliver []*Request) []*Request {
	for {
		i := slices.IndexFunc(of.buffered, func(r *Request) bool { return !s.waits(of, r) })
		if i < 0 {
			return deliver
		}
		next := of.buffered[i]
		of.buffered = slices.Delete(of.buffered, i, i+1)
		deliver = s.deliver(from, of, next, deliver)
	}
}

// Passed takes note of a lock that an entity passed on. It has a place in what
// that entity sends, although it is not sorted: what is sent after it follows it.
// DurableTask takes no note, and holds that back for as long as the window.
func (s *Sorter) Passed(r *Request, by string) (deliver []*Request) {
	from, ok := s.received.get(by)
	if !ok || !r.Timestamp.After(from.last) || r.Predecessor.After(later(from.last, from.passed)) {
		return nil
	}
	from.passed = later(from.passed, r.Timestamp)
	return s.follow(from, &from.run, nil)
}

// deliver appends r, whose turn it is, unless it came before with another label:
// its successors follow the label that it has now.
func (s *Sorter) deliver(from *source, of *run, r *Request, deliver []*Request) []*Request {
	if !r.Predecessor.After(of.last) {
		of.buffered = slices.DeleteFunc(of.buffered, func(b *Request) bool { return b.Timestamp.Before(r.Timestamp) })
	}
	// What follows what was delivered, and has another clock reading, is of a later
	// checkpoint of the sender's, whose history has what is before: only what comes
	// from now on can be sent again with another label.
	if r.Predecessor.Equal(of.last) && r.Timestamp.Sub(r.Predecessor) > tick && !slices.Contains(from.recent, mark(r.ID)) {
		from.forgetIDs(recentFromSender - 1)
	}
	of.last = later(of.last, r.Timestamp)
	if of.last.Before(s.receiveHorizon) {
		of.last = time.Time{}
	}
	return from.add(r, deliver)
}

// add appends r unless it is known by its ID.
func (from *source) add(r *Request, deliver []*Request) []*Request {
	if slices.Contains(from.recent, mark(r.ID)) {
		return deliver
	}
	from.forgetIDs(mostFromSender - 1)
	from.recent = append(from.recent.last(mostFromSender-1), mark(r.ID))
	return append(deliver, r)
}

// hold keeps r in its place. A second one with the same label is the same.
func (of *run) hold(r *Request) {
	i, found := slices.BinarySearchFunc(of.buffered, r, func(a, b *Request) int { return a.Timestamp.Compare(b.Timestamp) })
	if found {
		of.buffered[i] = r
		return
	}
	of.buffered = slices.Insert(of.buffered, i, r)
}
