package entity

import (
	"slices"
	"time"
)

// The JSON form of a [Sorter] has the members of DurableTask's MessageSorter, and extensions
// that DurableTask ignores.

// ticksOf converts a time to ticks since 1970.
func ticksOf(t time.Time) int64 { return t.Unix()*ticksPerSecond + int64(t.Nanosecond())/int64(tick) }

// timeOf converts ticks since 1970 to a time. It returns ok == false if .NET cannot represent
// it.
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

// A wireRun is the JSON form of a run.
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
	e := run{last: w.Last.Time, execution: w.ExecutionID, recent: w.Seen, old: w.Old.Time, free: w.Free.Time, loose: w.Loose}
	if w.Seen == nil && w.Came == nil && w.Links == nil && w.Free.IsZero() && !w.Loose { // written by DurableTask, which holds no IDs
		e.old = e.last
	}
	for _, key := range w.Buffered.keys {
		if r := w.Buffered.values[key]; r != nil {
			e.buffered = append(e.buffered, r)
		}
	}
	slices.SortStableFunc(e.buffered, compareRequests)
	base := ticksOf(e.last)
	for pair := range slices.Chunk(w.Came[:len(w.Came)/2*2], 2) {
		last, ok := timeOf(base - pair[0])
		first, also := timeOf(base - pair[0] - pair[1])
		if ok && also {
			e.came = append(e.came, span{first, last})
		}
	}
	for pair := range slices.Chunk(w.Links[:len(w.Links)/2*2], 2) {
		label, ok := timeOf(base - pair[0])
		after, also := timeOf(base - pair[1])
		if ok && also {
			e.links = append(e.links, link{label, after})
		}
	}
	return e
}
