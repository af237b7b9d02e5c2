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

func (r *activityRun) spend(d time.Duration) { r.takes.Add(int64(max(d, 0))) }

// Spend adds d to the duration of an activity or a step in the hub's time: the result arrives that much
// later. ctx is the context of the activity or the step. Spend returns immediately, and the clock does not advance. Use it
// in stubs:
//
//	durabletest.Stub(hub, CopyFile, func(ctx context.Context, f File) (int64, error) {
//		durabletest.Spend(ctx, 5*time.Second)
//		return f.Size, nil
//	})
//
// It panics if ctx is not the context of an activity or a step in a [Hub].
func Spend(ctx context.Context, d time.Duration) {
	run, ok := ctx.Value(activityRunKey{}).(*activityRun)
	if !ok {
		panic("durabletest: Spend: ctx is not the context of an activity or a step in a Hub")
	}
	run.spend(d)
}

// Calls returns the inputs of all calls of an activity, in order. Each retry counts as a call. Calls of a
// stub count as calls of the activity that it replaces.
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
	// A function with the activity's input type decodes the inputs exactly as the activity does.
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
