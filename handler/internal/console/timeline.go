package console

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"
)

// A timeline shows the steps in a window of time, one page of rows at a time, and an overview of all
// steps. Lengths are in units of a drawing with the width drawingWidth.
type timeline struct {
	Steps, Shown int // in the history, and in the window
	Window       span
	All          span
	Rows         []timelineRow
	First        int // number of the first row in the window, starting at 1
	Ticks        []string
	Overview     []bucket
	From, Width  float64 // position of the window in the overview

	Previous, Next, In, Out, Earlier, Later, Whole string // queries, "" if not applicable
}

// Last returns the number of the last row, starting at 1.
func (t *timeline) Last() int { return t.First + len(t.Rows) - 1 }

// Row returns the number of the first row, starting at 0.
func (t *timeline) Row() int { return t.First - 1 }

// IsPart reports whether the window is smaller than the complete time range.
func (t *timeline) IsPart() bool { return t.Whole != "" }

// A timelineLink is a button that shows another window or page.
type timelineLink struct{ Text, Query string }

// Links returns the buttons. They are always the same; those without an effect have no query.
func (t *timeline) Links() []timelineLink {
	return []timelineLink{
		{"Zoom in", t.In},
		{"Zoom out", t.Out},
		{"Earlier", t.Earlier},
		{"Later", t.Later},
		{"All", t.Whole},
		{"Previous actions", t.Previous},
		{"Next actions", t.Next},
	}
}

// Sizes of the drawing.
const (
	drawingWidth   = 1000
	overviewHeight = 40
	buckets        = 200 // in the overview
	timelineRows   = 200 // per page
	smallestBar    = 2
	completeRange  = "row=0" // query of the complete range, which grows while the instance runs
)

// A span is a range of time.
type span struct{ From, To time.Time }

func (s span) length() time.Duration { return max(s.To.Sub(s.From), time.Millisecond) }

// x returns the position of t in a drawing of the span.
func (s span) x(t time.Time) float64 {
	x := float64(t.Sub(s.From)) / float64(s.length()) * drawingWidth
	return math.Round(10*min(max(x, 0), drawingWidth)) / 10
}

// query returns the query of the span.
func (s span) query(row int) string {
	q := url.Values{"from": {strconv.FormatInt(s.From.UnixNano(), 10)}, "to": {strconv.FormatInt(s.To.UnixNano(), 10)}}
	if row > 0 {
		q.Set("row", strconv.Itoa(row))
	}
	return q.Encode()
}

// A timelineRow is a step with its bars.
type timelineRow struct {
	step
	After, Took time.Duration // since the start of the execution; of the step
	Bars        []bar
}

// A bar is an attempt in a drawing, or the pause before an attempt.
type bar struct {
	X, Width float64
	Outcome  string
}

// A bucket is a column of the overview. Its height represents the number of running steps.
type bucket struct {
	X, Y, Width, Height float64
	Failed              bool
}

// drawTimeline draws the steps of an execution from began to end. q selects the window and the first
// row; the default is the complete range from the first row.
func drawTimeline(steps []step, began, end time.Time, q url.Values) *timeline {
	all := span{began, end}
	for i := range steps {
		begin, end := steps[i].Begin(), endOf(steps[i].last(), all.To)
		if begin.Before(all.From) {
			all.From = begin
		}
		if end.After(all.To) {
			all.To = end
		}
	}
	t := &timeline{Steps: len(steps), All: all, Window: windowOf(q, all), Overview: overviewOf(steps, all)}
	first, _ := strconv.Atoi(q.Get("row"))
	for i := range steps {
		s := &steps[i]
		until := endOf(s.last(), all.To)
		if s.Begin().After(t.Window.To) || until.Before(t.Window.From) {
			continue
		}
		if t.Shown >= first && len(t.Rows) < timelineRows {
			row := timelineRow{step: *s, After: s.Begin().Sub(all.From), Took: max(0, until.Sub(s.Begin()))}
			row.Bars = t.Window.bars(s.Attempts, all.To)
			t.Rows = append(t.Rows, row)
		}
		t.Shown++
	}
	t.First = min(first, t.Shown) + 1
	t.links(first)
	return t
}

// windowOf returns the window in q, limited to all.
func windowOf(q url.Values, all span) span {
	w := all
	for name, bound := range map[string]*time.Time{"from": &w.From, "to": &w.To} {
		if n, err := strconv.ParseInt(q.Get(name), 10, 64); err == nil {
			*bound = time.Unix(0, n).UTC()
		}
	}
	if w.From.Before(all.From) {
		w.From = all.From
	}
	if w.To.After(all.To) {
		w.To = all.To
	}
	if !w.From.Before(w.To) {
		return all
	}
	return w
}

// endOf returns the end of an attempt, or now if it is running. The result is never before the start,
// even if the clocks of several machines differ.
func endOf(a *attempt, now time.Time) time.Time {
	end := a.End
	if end.IsZero() {
		end = now
	}
	if end.Before(a.Begin) {
		return a.Begin
	}
	return end
}

// bars draws attempts and the pauses between them.
func (s span) bars(attempts []attempt, now time.Time) []bar {
	var all []bar
	add := func(from, to time.Time, outcome string) {
		if from.After(s.To) || to.Before(s.From) {
			return
		}
		x := min(s.x(from), drawingWidth-smallestBar)
		all = append(all, bar{x, math.Round(10*max(s.x(to)-x, smallestBar)) / 10, outcome})
	}
	for i := range attempts {
		if i > 0 {
			add(endOf(&attempts[i-1], now), attempts[i].Begin, "pause")
		}
		add(attempts[i].Begin, endOf(&attempts[i], now), attempts[i].Outcome)
	}
	return all
}

// overviewOf counts the running steps in each bucket of a span.
func overviewOf(steps []step, all span) []bucket {
	var begun [buckets + 1]int
	var failed [buckets]bool
	at := func(t time.Time) int { return min(int(all.x(t)/drawingWidth*buckets), buckets-1) }
	for i := range steps {
		last := at(endOf(steps[i].last(), all.To))
		begun[at(steps[i].Begin())]++
		begun[last+1]--
		if steps[i].Outcome() == outcomeFailed {
			failed[last] = true
		}
	}
	most, now := 1, 0
	for _, n := range begun[:buckets] {
		now += n
		most = max(most, now)
	}
	var drawn []bucket
	now = 0
	for i, n := range begun[:buckets] {
		if now += n; now > 0 {
			h := math.Ceil(overviewHeight * math.Sqrt(float64(now)/float64(most)))
			const width = drawingWidth / buckets
			drawn = append(drawn, bucket{float64(i * width), overviewHeight - h, width, h, failed[i]})
		}
	}
	return drawn
}

// links sets the queries of other windows and pages.
func (t *timeline) links(first int) {
	w, all := t.Window, t.All
	t.From, t.Width = all.x(w.From), max(all.x(w.To)-all.x(w.From), smallestBar)
	page := func(row int) string {
		if w == all {
			return "row=" + strconv.Itoa(row)
		}
		return w.query(row)
	}
	if first > 0 {
		t.Previous = page(max(0, first-timelineRows))
	}
	if first+len(t.Rows) < t.Shown {
		t.Next = page(first + timelineRows)
	}
	quarter := w.length() / 4
	if w.length() > time.Millisecond {
		t.In = span{w.From.Add(quarter), w.To.Add(-quarter)}.query(0)
	}
	if w != all {
		t.Whole = completeRange
		t.Out = span{w.From.Add(-2 * quarter), w.To.Add(2 * quarter)}.query(0)
	}
	if w.From.After(all.From) {
		t.Earlier = span{w.From.Add(-2 * quarter), w.To.Add(-2 * quarter)}.query(0)
	}
	if w.To.Before(all.To) {
		t.Later = span{w.From.Add(2 * quarter), w.To.Add(2 * quarter)}.query(0)
	}
	for i := range 5 {
		at := w.From.Add(w.length() / 4 * time.Duration(i))
		t.Ticks = append(t.Ticks, lengthOf(at.Sub(all.From)))
	}
}

// lengthOf formats a duration in its two largest units, such as "2d 4h" or "1.25s".
func lengthOf(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + lengthOf(-max(d, -math.MaxInt64)) // -math.MinInt64 is math.MinInt64
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		d = d.Round(time.Hour)
		return fmt.Sprintf("%dd %dh", d/day, d%day/time.Hour)
	}
}
