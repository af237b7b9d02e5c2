package entity

import (
	"encoding/json"
	"slices"
	"time"
)

// Limits on the number of request IDs that a run holds.
const (
	// keepCommitted applies to committed episodes, which cannot run again. keepOther applies to
	// executions before the last, whose last episode may run again.
	keepCommitted = 32
	keepOther     = 256
	// maxRecent applies to an episode that may run again.
	maxRecent = 10_000
)

// maxOtherRuns is the maximum number of executions of a sender in addition to the last.
const maxOtherRuns = 4

// A source orders the requests of one sender.
type source struct {
	run           // of the execution with the newest label, usually the newest execution
	others []*run // other recent executions
	// over is the last label of forgotten executions. Some of their IDs are kept by others.
	over time.Time
}

// runs returns the run of each execution, the last execution last.
func (from *source) runs() []*run { return append(slices.Clone(from.others), &from.run) }

// runOf returns the run of an execution, or nil.
func (from *source) runOf(execution string) *run {
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

// startRun creates the run of r's execution. If that displaces another run, it appends the
// buffered requests of that run to deliver.
//
// The execution may have been forgotten earlier. Its requests therefore do not wait for labels
// that a forgotten execution may have had.
func (from *source) startRun(r *Request, deliver []*Request) (*run, []*Request) {
	if len(from.others) == maxOtherRuns {
		deliver = append(deliver, from.forgetRun()...)
	}
	e := &run{execution: r.ParentExecution, free: from.over}
	if r.Timestamp.After(from.last) {
		before := from.run
		before.recent = before.recent.last(keepOther)
		from.others = append(from.others, &before)
		from.run, e = *e, &from.run
	} else {
		from.others = append(from.others, e)
	}
	return e, deliver
}

// oldest returns the index in others of the next run to forget: the oldest without buffered
// requests, or else the oldest.
func (from *source) oldest() int {
	return max(0, slices.IndexFunc(from.others, func(o *run) bool { return len(o.buffered) == 0 }))
}

// forgetRun forgets the oldest run. The next oldest keeps some of its IDs. It returns the
// buffered requests of the forgotten run.
func (from *source) forgetRun() (buffered []*Request) {
	i := from.oldest()
	first := from.others[i]
	from.over = later(from.over, first.last)
	for _, r := range slices.Clone(first.buffered) { // add removes r from first.buffered
		from.over = later(from.over, r.Timestamp)
		buffered = from.add(first, r, buffered)
	}
	from.others = slices.Delete(from.others, i, i+1)
	next := from.others[from.oldest()]
	next.recent = append(first.recent.last(keepCommitted), next.recent...)
	return buffered
}

// has reports whether the ID of r is held.
func (from *source) has(r *Request) bool {
	k := mark(r.key())
	return slices.Contains(from.recent, k) || slices.ContainsFunc(from.others, func(o *run) bool { return slices.Contains(o.recent, k) })
}

// knows reports whether r is a duplicate, by its ID or by its label. The ID may have been
// dropped.
func (from *source) knows(e *run, r *Request) bool { return !r.Timestamp.After(e.old) || from.has(r) }

// accept records the label of r, whose predecessors have arrived, and appends r unless it is a
// duplicate.
func (from *source) accept(e *run, r *Request, horizon time.Time, deliver []*Request) []*Request {
	e.recordLabel(r.Timestamp, r.Predecessor, horizon)
	e.last = later(e.last, r.Timestamp)
	return from.add(e, r, deliver)
}

// add holds the ID of r and appends r, unless the ID is held already.
func (from *source) add(e *run, r *Request, deliver []*Request) []*Request {
	if from.has(r) {
		return deliver
	}
	e.recent = append(e.recent.last(maxRecent-1), mark(r.key()))
	e.unbuffer(r.key())
	return append(deliver, r)
}

// deliverReady appends the buffered requests that need not wait any longer.
func (from *source) deliverReady(e *run, horizon time.Time, deliver []*Request) []*Request {
	for {
		if l, ok := e.nextLink(horizon); ok {
			e.recordLabel(l.label, l.after, horizon)
			continue
		}
		r, ok := e.nextBuffered(horizon)
		if !ok {
			return deliver
		}
		deliver = from.accept(e, r, horizon, deliver)
	}
}

// write writes DurableTask's members, then the extensions.
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

// UnmarshalJSON decodes a source.
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
	from.recent = append(wire.Before, from.recent...) // earlier versions wrote it
	for i := range wire.Others[:min(len(wire.Others), maxOtherRuns)] {
		from.others = append(from.others, new(wire.Others[i].run()))
	}
	return nil
}

// isQuiet reports whether no request of a sender waits and few marks are needed for it.
func (from *source) isQuiet() bool {
	n := 0
	for _, e := range from.runs() {
		n += len(e.recent) + len(e.ends())
		if len(e.buffered) > 0 || len(e.links) > 0 || e.last.IsZero() {
			return false
		}
	}
	return n <= maxSenderMarks
}
