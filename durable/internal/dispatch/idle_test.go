package dispatch

import (
	"context"
	"slices"
	"testing"
	"time"
)

// idleOf returns who waits of sessions that have entered after the given times, each with
// a size.
func idleOf(i *idle, clock *time.Time, passes []time.Duration, size int) (wait func() []int, leave []func(bool)) {
	var all []context.Context
	for _, d := range passes {
		*clock = clock.Add(d)
		ctx, l := i.enter(context.Background(), size)
		all, leave = append(all, ctx), append(leave, l)
	}
	return func() (waiting []int) {
		for n, ctx := range all {
			if ctx.Err() == nil {
				waiting = append(waiting, n)
			}
		}
		return waiting
	}, leave
}

func TestIdle_GiveWayWhereRoomIsNeeded(t *testing.T) {
	const s = time.Second
	full, newly := []time.Duration{s, s, s}, []time.Duration{s, s / 10, s / 10}
	for name, test := range map[string]struct {
		passes []time.Duration
		size   int
		then   func(i *idle, leave []func(bool))
		want   []int
	}{
		"nobody needs it":                    {full, 0, func(*idle, []func(bool)) {}, []int{0, 1, 2}},
		"the one that has waited longest":    {full, 0, func(i *idle, _ []func(bool)) { i.giveWay() }, []int{1, 2}},
		"the last, if all have come lately":  {newly, 0, func(i *idle, _ []func(bool)) { i.giveWay() }, []int{0, 1}},
		"more than there may be":             {[]time.Duration{s, s, s, s, s}, 0, func(*idle, []func(bool)) {}, []int{1, 2, 3, 4}},
		"more than there may be, lately":     {[]time.Duration{0, 0, 0, 0, 0}, 0, func(*idle, []func(bool)) {}, []int{0, 1, 2, 3}},
		"larger than they may be":            {full, maxIdleSize/2 - 1, func(*idle, []func(bool)) {}, []int{1, 2}},
		"a single one that is larger":        {full, maxIdleSize + 1, func(*idle, []func(bool)) {}, []int{2}},
		"one that goes on, and another":      {full, 0, func(i *idle, l []func(bool)) { i.giveWay(); l[0](true) }, []int{2}},
		"one that ends, and no other":        {full, 0, func(i *idle, l []func(bool)) { i.giveWay(); l[0](false) }, []int{1, 2}},
		"those that have left need not":      {full, 0, func(i *idle, l []func(bool)) { l[0](true); i.giveWay() }, []int{2}},
		"what has left counts no more":       {full[:2], maxIdleSize / 2, func(i *idle, l []func(bool)) { l[0](true); i.enter(context.Background(), maxIdleSize/2) }, []int{1}},
		"the next to wait, if there is none": {nil, 0, func(i *idle, _ []func(bool)) { i.giveWay(); wantEnded(t, i, true); wantEnded(t, i, false) }, nil},
		"none, once there is room":           {nil, 0, func(i *idle, _ []func(bool)) { i.giveWay(); i.satisfied(); wantEnded(t, i, false) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			clock := time.Now()
			i := &idle{limit: 4, now: func() time.Time { return clock }}
			waiting, leave := idleOf(i, &clock, test.passes, test.size)
			test.then(i, leave)
			if got := waiting(); !slices.Equal(got, test.want) || i.size > maxIdleSize+1 {
				t.Errorf("%v wait, want %v; they have %d bytes", got, test.want, i.size)
			}
		})
	}
}

func wantEnded(t *testing.T, i *idle, want bool) {
	t.Helper()
	ctx, _ := i.enter(context.Background(), 0)
	if got := ctx.Err() != nil; got != want {
		t.Errorf("the next session gives way: %v, want %v", got, want)
	}
}
