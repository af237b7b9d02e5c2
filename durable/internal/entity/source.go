package entity

import (
	"encoding/json"
	"slices"
	"time"
)

// How many IDs of requests are remembered.
const (
	// recentOfRun is for episodes of an execution that count, which cannot run again,
	// recentOfOther for executions before the last, whose last episode may.
	recentOfRun   = 32
	recentOfOther = 256
	// mostOfRun is for an episode that may run again.
	mostOfRun = 10_000
)

// otherRuns is how many executions of a sender are remembered besides the last.
const otherRuns = 4

// A source is what is known of one sender.
type source struct {
	run           // of the execution with the last label, which should be the newest
	others []*run // of other recent executions
	// over is the last label of forgotten executions. Some of their IDs are among those
	// of others.
	over time.Time
}

// runs returns what is known of each execution, the last one last.
func (from *source) runs() []*run { return append(slices.Clone(from.others), &from.run) }

// of returns the run of an execution, nil if there is none.
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

// begin begins a run of r's execution. If it forgets another for that, it appends the
// buffered requests of that one to deliver.
//
// The execution may itself be a forgotten one. So its requests do not wait for labels
// that a forgotten one may have had.
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

// oldest returns which of the other executions is forgotten next: the oldest that has
// nothing buffered, or else the oldest.
func (from *source) oldest() int {
	return max(0, slices.IndexFunc(from.others, func(o *run) bool { return len(o.buffered) == 0 }))
}

// forgetRun forgets the oldest execution. The next one keeps some of its IDs, and what it
// has buffered is returned.
func (from *source) forgetRun() (buffered []*Request) {
	i := from.oldest()
	first := from.others[i]
	from.over = later(from.over, first.last)
	for _, r := range slices.Clone(first.buffered) { // add takes it out of there
		from.over = later(from.over, r.Timestamp)
		buffered = from.add(first, r, buffered)
	}
	from.others = slices.Delete(from.others, i, i+1)
	heir := from.others[from.oldest()]
	heir.recent = append(first.recent.last(recentOfRun), heir.recent...)
	return buffered
}

// has reports whether the ID of r is known.
func (from *source) has(r *Request) bool {
	k := mark(r.key())
	return slices.Contains(from.recent, k) || slices.ContainsFunc(from.others, func(o *run) bool { return slices.Contains(o.recent, k) })
}

// knows reports whether r is a duplicate: by its ID or, if that may have been
// forgotten, by its label.
func (from *source) knows(of *run, r *Request) bool { return !r.Timestamp.After(of.old) || from.has(r) }

// take takes r, whose turn it is, and appends it unless it is a duplicate.
func (from *source) take(of *run, r *Request, horizon time.Time, deliver []*Request) []*Request {
	of.link(r.Timestamp, r.Predecessor, horizon)
	of.last = later(of.last, r.Timestamp)
	return from.add(of, r, deliver)
}

// add appends r unless its ID is known.
func (from *source) add(of *run, r *Request, deliver []*Request) []*Request {
	if from.has(r) {
		return deliver
	}
	of.recent = append(of.recent.last(mostOfRun-1), mark(r.key()))
	of.unbuffer(r.key())
	return append(deliver, r)
}

// follow appends the buffered requests whose turn has come.
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

// write writes DurableTask's members and then ours.
func (from *source) write(w *writer) {
	w.open()
	from.run.write(w)
	if !from.over.IsZero() {
		w.time("over", from.over)
	}
	if len(from.others) > 0 {
		w.list("others", len(from.others), func(i int) {
			w.open()
			from.others[i].write(w)
			w.close()
		})
	}
	w.close()
}

// UnmarshalJSON reads a source.
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
	*from = source{run: wire.run(), over: wire.Over.Time}
	from.recent = append(wire.Before, from.recent...) // as earlier versions wrote it
	for i := range wire.Others[:min(len(wire.Others), otherRuns)] {
		from.others = append(from.others, new(wire.Others[i].run()))
	}
	return nil
}

// isQuiet reports whether nothing of a sender waits, and little has to be known of it.
func (from *source) isQuiet() bool {
	n := 0
	for _, of := range from.runs() {
		n += len(of.recent) + len(of.ends())
		if len(of.buffered) > 0 || len(of.links) > 0 || of.last.IsZero() {
			return false
		}
	}
	return n <= mostOfSender
}
