package entity

import (
	"encoding/json"
	"slices"
	"time"
)

// How many requests are remembered by their IDs.
const (
	// recentOfRun is how many of an execution are that it cannot have sent again,
	// and recentOfOther of one that is not the last: its last episode may be.
	recentOfRun   = 32
	recentOfOther = 256
	// mostOfRun is how many of an execution are at most.
	mostOfRun = 10_000
	// recentBefore is how many are of executions that are forgotten.
	recentBefore = 32
)

// otherRuns is how many executions of a sender are known besides the last.
const otherRuns = 4

// A source is what is known of one sender.
type source struct {
	run           // of the execution that is the last, as it seems
	others []*run // of others, which have not ended for long or have just begun
	// over is the last label of executions of which nothing else is known any more
	// than some IDs.
	over   time.Time
	before marks
}

// runs returns what is known of each execution, the last one last.
func (from *source) runs() []*run { return append(slices.Clone(from.others), &from.run) }

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
//
// The execution may be one that was forgotten. What may follow such a one's
// requests does not wait for them.
func (from *source) begin(r *Request, deliver []*Request) (*run, []*Request) {
	if len(from.others) == otherRuns {
		deliver = append(deliver, from.forgetRun()...)
	}
	of := &run{execution: r.ParentExecution, free: from.over}
	if r.Timestamp.After(from.last) {
		before := from.run
		before.recent = before.recent.last(recentOfOther)
		from.others = append(from.others, &before)
		from.run, of = *of, &from.run
	} else {
		from.others = append(from.others, of)
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
	for _, r := range slices.Clone(first.buffered) { // add takes it out of there
		from.over = later(from.over, r.Timestamp)
		buffered = from.add(first, r, buffered)
	}
	from.before = append(from.before, first.recent...).last(recentBefore)
	return buffered
}

// forgetOthers forgets executions but the last of which nothing need be known, and
// returns the IDs that were.
func (from *source) forgetOthers() (ids marks) {
	from.others = slices.DeleteFunc(from.others, func(o *run) bool {
		if o.isOver() {
			ids = append(ids, o.recent...)
		}
		return o.isOver()
	})
	return ids
}

// knows reports whether r came before: by its ID or, if that may have been
// forgotten, by its label.
func (from *source) knows(of *run, r *Request) bool {
	return !r.Timestamp.After(of.old) || slices.Contains(of.recent, mark(r.key())) || slices.Contains(from.before, mark(r.key()))
}

// take takes r, whose turn it is, and appends it unless it came before.
func (from *source) take(of *run, r *Request, horizon time.Time, deliver []*Request) []*Request {
	of.link(r.Timestamp, r.Predecessor, horizon)
	of.last = later(of.last, r.Timestamp)
	return from.add(of, r, deliver)
}

// add appends r unless it is known by its ID.
func (from *source) add(of *run, r *Request, deliver []*Request) []*Request {
	if slices.Contains(of.recent, mark(r.key())) || slices.Contains(from.before, mark(r.key())) {
		return deliver
	}
	of.recent = append(of.recent.last(mostOfRun-1), mark(r.key()))
	of.unbuffer(r.key())
	return append(deliver, r)
}

// follow appends what was held back and has nothing more to wait for.
func (from *source) follow(of *run, horizon time.Time, deliver []*Request) []*Request {
	for {
		if l, ok := of.nextLink(horizon); ok {
			of.link(l.label, l.after, horizon)
			continue
		}
		r, ok := of.nextBuffered(horizon)
		if !ok {
			return deliver
		}
		deliver = from.take(of, r, horizon, deliver)
	}
}

// write writes DurableTask's members and then those that are ours.
func (from *source) write(w *writer) {
	w.open()
	from.run.write(w)
	if !from.over.IsZero() {
		w.time("over", from.over)
	}
	w.marks("before", from.before)
	if len(from.others) > 0 {
		w.list("others", len(from.others), func(i int) {
			w.open()
			from.others[i].write(w)
			w.close()
		})
	}
	w.close()
}

// UnmarshalJSON reads what is known of a sender.
func (from *source) UnmarshalJSON(data []byte) error {
	var wire struct {
		wireRun
		Over   stamp     `json:"over"`
		Before marks     `json:"before"`
		Others []wireRun `json:"others"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*from = source{run: wire.run(), over: wire.Over.Time, before: wire.Before}
	for i := range wire.Others[:min(len(wire.Others), otherRuns)] {
		from.others = append(from.others, new(wire.Others[i].run()))
	}
	return nil
}
