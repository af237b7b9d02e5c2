package durabletest

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

type activityRunKey struct{}

// An activityRun is one run of an activity.
type activityRun struct{ takes atomic.Int64 }

// Spend makes the activity that ctx was given to take d, in the hub's time: its
// result comes so much later. It returns at once, and the clock stands still.
// What is spent adds up. It is for stubs:
//
//	durabletest.Stub(hub, CopyFile, func(ctx context.Context, f File) (int64, error) {
//		durabletest.Spend(ctx, 5*time.Second)
//		return f.Size, nil
//	})
//
// It panics if ctx is not that of an activity in a [Hub].
func Spend(ctx context.Context, d time.Duration) {
	run, ok := ctx.Value(activityRunKey{}).(*activityRun)
	if !ok {
		panic("durabletest: Spend was called with a context that no Hub gave to an activity")
	}
	run.takes.Add(int64(max(d, 0)))
}

// Calls returns the inputs with which an activity was run, in order. A call that
// is retried counts again. Stubs count as what they stand for.
func Calls[I, O any](h *Hub, activity func(context.Context, I) (O, error)) []I {
	h.t.Helper()
	return CallsName(h, durable.ActivityName[I, O](h.lookup(activity).Name()))
}

// CallsName is [Calls] for an activity that is called by name.
func CallsName[I, O any](h *Hub, activity durable.ActivityName[I, O]) []I {
	h.t.Helper()
	h.mu.Lock()
	inputs := h.calls[strings.ToUpper(string(activity))]
	h.mu.Unlock()
	// A function of the same type decodes them as the activity itself does.
	var all []I
	decode, _ := dispatch.FunctionsOf(durable.NewRegistry().Replace(durable.Activity(string(activity), func(_ context.Context, in I) (durable.Void, error) {
		all = append(all, in)
		return durable.Void{}, nil
	}))).Activity(string(activity))
	for i, input := range inputs {
		if _, err := decode(h.ctx, input); err != nil {
			h.t.Fatalf("durabletest: call %d of %s: %v", i, activity, err)
		}
	}
	return all
}
