package dispatch

import (
	"context"
	"slices"
	"testing"
	"time"
)

// idleOf enters sessions of the given size. The clock advances by one of passes before each. It
// returns a function that lists the sessions that are still waiting, and their leave functions.
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

func TestIdle_EndsSessionsIfSlotsOrMemoryAreNeeded(t *testing.T) {
	const s = time.Second
	full, newly := []time.Duration{s, s, s}, []time.Duration{s, s / 10, s / 10}
	for name, test := range map[string]struct {
		passes []time.Duration
		size   int
		then   func(i *idle, leave []func(bool))
		want   []int
	}{
		"no slot is needed":                           {full, 0, func(*idle, []func(bool)) {}, []int{0, 1, 2}},
		"the longest wait ends":                       {full, 0, func(i *idle, _ []func(bool)) { i.endOne() }, []int{1, 2}},
		"the newest ends if all are new":              {newly, 0, func(i *idle, _ []func(bool)) { i.endOne() }, []int{0, 1}},
		"more than the limit":                         {[]time.Duration{s, s, s, s, s}, 0, func(*idle, []func(bool)) {}, []int{1, 2, 3, 4}},
		"more than the limit, all new":                {[]time.Duration{0, 0, 0, 0, 0}, 0, func(*idle, []func(bool)) {}, []int{0, 1, 2, 3}},
		"more memory than the limit":                  {full, maxIdleSize/2 - 1, func(*idle, []func(bool)) {}, []int{1, 2}},
		"a single session above the limit":            {full, maxIdleSize + 1, func(*idle, []func(bool)) {}, []int{2}},
		"an ended session continues, so another ends": {full, 0, func(i *idle, l []func(bool)) { i.endOne(); l[0](true) }, []int{2}},
		"an ended session leaves":                     {full, 0, func(i *idle, l []func(bool)) { i.endOne(); l[0](false) }, []int{1, 2}},
		"sessions that have left do not end":          {full, 0, func(i *idle, l []func(bool)) { l[0](true); i.endOne() }, []int{2}},
		"sessions that have left take no memory":      {full[:2], maxIdleSize / 2, func(i *idle, l []func(bool)) { l[0](true); i.enter(context.Background(), maxIdleSize/2) }, []int{1}},
		"the next session ends if none is idle":       {nil, 0, func(i *idle, _ []func(bool)) { i.endOne(); wantEnded(t, i, true); wantEnded(t, i, false) }, nil},
		"two slots are needed": {nil, 0, func(i *idle, _ []func(bool)) {
			i.endOne()
			i.endOne()
			wantEnded(t, i, true)
			wantEnded(t, i, true)
			wantEnded(t, i, false)
		}, nil},
		"no session ends after withdraw": {nil, 0, func(i *idle, _ []func(bool)) { i.endOne(); i.withdraw(); wantEnded(t, i, false) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			clock := time.Now()
			i := &idle{limit: 4, now: func() time.Time { return clock }}
			waiting, leave := idleOf(i, &clock, test.passes, test.size)
			test.then(i, leave)
			if got := waiting(); !slices.Equal(got, test.want) || i.size > maxIdleSize+1 {
				t.Errorf("sessions %v are waiting, want %v; they have %d bytes", got, test.want, i.size)
			}
		})
	}
}

func wantEnded(t *testing.T, i *idle, want bool) {
	t.Helper()
	ctx, _ := i.enter(context.Background(), 0)
	if got := ctx.Err() != nil; got != want {
		t.Errorf("the next session ended: %v, want %v", got, want)
	}
}
