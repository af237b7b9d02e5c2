package entity

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// What is stored of a [Sorter]: the members of DurableTask's MessageSorter, and
// those that are ours, which DurableTask takes no notice of.

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

// write writes DurableTask's members and then those that are ours.
func (from *source) write(w *writer) {
	w.open()
	from.run.write(w, len(from.recent) > 0)
	w.marks("seen", from.recent)
	if !from.over.IsZero() {
		w.time("over", from.over)
	}
	if len(from.others) > 0 {
		w.list("others", len(from.others), func(i int) {
			w.open()
			from.others[i].write(w, len(from.recent) > 0)
			w.close()
		})
	}
	w.close()
}

// write writes DurableTask's members and then those that are ours, which need not
// say that all is old if no IDs are known.
func (of *run) write(w *writer, hasIDs bool) {
	w.time("Last", of.last)
	w.filled("ExecutionId", of.execution)
	if len(of.buffered) > 0 {
		w.key("Buffered")
		w.open()
		for _, r := range of.buffered {
			w.key(stampText(r.Timestamp))
			r.write(w)
		}
		w.close()
	}
	if of.late {
		w.bool("late", true)
	}
	if !of.old.IsZero() && hasIDs {
		w.time("old", of.old)
	}
	if of.passed.After(of.last) {
		w.time("passed", of.passed)
	}
}

func stampText(t time.Time) string {
	quoted := appendStamp(nil, t)
	return string(quoted[1 : len(quoted)-1])
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

// A wireRun is a run as JSON has it.
type wireRun struct {
	Last        stamp
	ExecutionID string `json:"ExecutionId"`
	Buffered    ordered[*Request]
	Late        bool  `json:"late"`
	Old         stamp `json:"old"`
	Passed      stamp `json:"passed"`
}

func (w *wireRun) run() run {
	of := run{last: w.Last.Time, execution: w.ExecutionID, late: w.Late, passed: w.Passed.Time, old: w.Old.Time}
	for _, key := range w.Buffered.keys {
		if r := w.Buffered.values[key]; r != nil {
			of.buffered = append(of.buffered, r)
		}
	}
	slices.SortStableFunc(of.buffered, func(a, b *Request) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.ID, b.ID))
	})
	return of
}

// UnmarshalJSON reads what is known of a sender.
func (from *source) UnmarshalJSON(data []byte) error {
	var wire struct {
		wireRun
		Seen   marks     `json:"seen"`
		Over   stamp     `json:"over"`
		Others []wireRun `json:"others"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*from = source{run: wire.run(), recent: wire.Seen, over: wire.Over.Time}
	if wire.Seen == nil { // it was written by somebody who remembers no IDs
		from.old = from.last
	}
	for i := range wire.Others[:min(len(wire.Others), otherRuns)] {
		from.others = append(from.others, new(wire.Others[i].run()))
	}
	return nil
}
