package console

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"
)

// A timeline shows the steps of a window of time, a page of rows at once, and all of them
// by an overview. Lengths are in units of a drawing that is drawingWidth wide.
type timeline struct {
	Steps, Shown int // of the history, and in the window
	Window       span
	All          span
	Rows         []timelineRow
	First        int // number of the first row in the window, from 1
	Ticks        []string
	Overview     []bucket
	From, Width  float64 // the window in the overview

	Previous, Next, In, Out, Earlier, Later, Whole string // queries, empty where there is nothing
}

// Last is the number of the last row.
func (t *timeline) Last() int { return t.First + len(t.Rows) - 1 }

// Row is the number of the first row, from 0.
func (t *timeline) Row() int { return t.First - 1 }

// IsPart reports whether the window is less than all, which grows with the instance.
func (t *timeline) IsPart() bool { return t.Whole != "" }

// A timelineLink is a button for another part.
type timelineLink struct{ Text, Query string }

// Links are the buttons, always the same ones.
func (t *timeline) Links() []timelineLink {
	return []timelineLink{
		{"Zoom in", t.In},
		{"Zoom out", t.Out},
		{"Earlier", t.Earlier},
		{"Later", t.Later},
		{"All", t.Whole},
		{"Previous steps", t.Previous},
		{"Next steps", t.Next},
	}
}

// Sizes of what is drawn.
const (
	drawingWidth   = 1000
	overviewHeight = 40
	buckets        = 200 // of the overview
	timelineRows   = 200 // at once
	smallestBar    = 2
	whole          = "row=0" // the query for all, which grows while an instance goes on
)

// A span of time.
type span struct{ From, To time.Time }

func (s span) length() time.Duration { return max(s.To.Sub(s.From), time.Millisecond) }

// x returns the place of a time in a drawing of the span.
func (s span) x(t time.Time) float64 {
	x := float64(t.Sub(s.From)) / float64(s.length()) * drawingWidth
	return math.Round(10*min(max(x, 0), drawingWidth)) / 10
}

// query returns what asks for a span.
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
	After, Took time.Duration // since the execution began, and of the step
	Bars        []bar
}

// A bar is an attempt in a drawing, or the pause before one.
type bar struct {
	X, Width float64
	Outcome  string
}

// A bucket is a part of the overview: how many steps went on then.
type bucket struct {
	X, Y, Width, Height float64
	Failed              bool
}

// drawTimeline draws the steps of an execution that began at some time and has gone on
// until end. The window and the first row are those of q, the whole and 0 by default.
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

// windowOf returns the window that is asked for, within what there is.
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

// endOf returns when an attempt ended: now, if it goes on; never before it began, which
// clocks of several machines may say.
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

// bars draws attempts, with the pauses between them.
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

// overviewOf counts the steps that went on in each part of a span.
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

// links sets what leads to other windows and rows.
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
		t.Whole = whole
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

// lengthOf returns a duration in its two largest units, such as "2d 4h" or "1.25s".
func lengthOf(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + lengthOf(-d)
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
