package entity

import (
	"encoding/json"
	"slices"
	"strconv"
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

// hasOurs reports whether a run has something that DurableTask knows nothing of.
func (of *run) hasOurs() bool {
	return len(of.recent) > 0 || len(of.came) > 0 || len(of.links) > 0 || of.loose || of.free.After(of.old)
}

// write writes DurableTask's members and then those that are ours, which need not
// say that all is old if there are no others.
func (of *run) write(w *writer) {
	w.time("Last", of.last)
	w.filled("ExecutionId", of.execution)
	if len(of.buffered) > 0 {
		w.key("Buffered")
		w.open()
		var last time.Time
		for _, r := range of.buffered { // a key is a label, but for those that are not the only one of theirs
			if last = later(r.Timestamp, last.Add(tick)); !last.Equal(r.Timestamp) {
				w.key(stampText(last.UTC()))
			} else {
				w.key(stampText(r.Timestamp))
			}
			r.write(w)
		}
		w.close()
	}
	w.marks("seen", of.recent)
	if !of.old.IsZero() && of.hasOurs() {
		w.time("old", of.old)
	}
	if of.free.After(of.old) {
		w.time("free", of.free)
	}
	if of.loose {
		w.bool("loose", true)
	}
	of.writeChain(w)
}

// writeChain writes labels as ticks before Last: of each span the last and how many
// there are besides, of each link both.
func (of *run) writeChain(w *writer) {
	base := ticksOf(of.last)
	if len(of.came) > 0 {
		w.list("came", 2*len(of.came), func(i int) {
			s := of.came[i/2]
			n := base - ticksOf(s.last)
			if i%2 > 0 {
				n = ticksOf(s.last) - ticksOf(s.first)
			}
			w.buf = strconv.AppendInt(w.buf, n, 10)
		})
	}
	if len(of.links) > 0 {
		w.list("links", 2*len(of.links), func(i int) {
			l := of.links[i/2]
			w.buf = strconv.AppendInt(w.buf, base-ticksOf([]time.Time{l.label, l.after}[i%2]), 10)
		})
	}
}

// ticksOf returns a time in ticks since 1970.
func ticksOf(t time.Time) int64 { return t.Unix()*ticksPerSecond + int64(t.Nanosecond())/int64(tick) }

// timeOf returns the time that a number of ticks since 1970 stands for; ok is false
// if it is none of .NET's.
func timeOf(ticks int64) (t time.Time, ok bool) {
	second := ticks / ticksPerSecond
	t = time.Unix(second, (ticks-second*ticksPerSecond)*int64(tick)).UTC()
	return t, t.Year() >= 1 && t.Year() <= 9999
}

const ticksPerSecond = int64(time.Second / tick)

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
	Seen        marks   `json:"seen"`
	Old         stamp   `json:"old"`
	Free        stamp   `json:"free"`
	Loose       bool    `json:"loose"`
	Came        []int64 `json:"came"`
	Links       []int64 `json:"links"`
}

func (w *wireRun) run() run {
	of := run{last: w.Last.Time, execution: w.ExecutionID, recent: w.Seen, old: w.Old.Time, free: w.Free.Time, loose: w.Loose}
	if w.Seen == nil && w.Came == nil && w.Links == nil && w.Free.IsZero() && !w.Loose { // DurableTask remembers no IDs
		of.old = of.last
	}
	for _, key := range w.Buffered.keys {
		if r := w.Buffered.values[key]; r != nil {
			of.buffered = append(of.buffered, r)
		}
	}
	slices.SortStableFunc(of.buffered, compareRequests)
	base := ticksOf(of.last)
	for pair := range slices.Chunk(w.Came[:len(w.Came)/2*2], 2) {
		last, ok := timeOf(base - pair[0])
		first, also := timeOf(base - pair[0] - pair[1])
		if ok && also {
			of.came = append(of.came, span{first, last})
		}
	}
	for pair := range slices.Chunk(w.Links[:len(w.Links)/2*2], 2) {
		label, ok := timeOf(base - pair[0])
		after, also := timeOf(base - pair[1])
		if ok && also {
			of.links = append(of.links, link{label, after})
		}
	}
	return of
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
