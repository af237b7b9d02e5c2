package whytest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Blocking has orchestrators that block after their first activity until the code is corrected.
type Blocking struct {
	corrected atomic.Bool
	released  chan struct{} // closed at the end of the test, to unblock the orchestrators
}

// Work is an activity.
func (*Blocking) Work(context.Context, durable.Void) (string, error) { return "done", nil }

// run calls an activity, runs block unless the code is corrected, and calls the activity again.
func (b *Blocking) run(ctx *durable.Context, block func(*durable.Context)) (string, error) {
	if _, err := durable.CallActivity(ctx, b.Work, durable.Void{}).Await(); err != nil {
		return "", err
	}
	if !b.corrected.Load() {
		block(ctx)
	}
	return durable.CallActivity(ctx, b.Work, durable.Void{}).Await()
}

// Foreign waits for a goroutine that makes a durable call, which is not allowed there.
func (b *Blocking) Foreign(ctx *durable.Context, _ durable.Void) (string, error) {
	return b.run(ctx, b.foreign)
}

// Channel waits for a channel, as select {} does.
func (b *Blocking) Channel(ctx *durable.Context, _ durable.Void) (string, error) {
	return b.run(ctx, func(*durable.Context) { <-b.released })
}

// Group waits for a goroutine.
func (b *Blocking) Group(ctx *durable.Context, _ durable.Void) (string, error) {
	return b.run(ctx, func(*durable.Context) {
		var group sync.WaitGroup
		group.Go(func() { <-b.released })
		group.Wait()
	})
}

// Read waits for input.
func (b *Blocking) Read(ctx *durable.Context, _ durable.Void) (string, error) {
	return b.run(ctx, func(*durable.Context) {
		r, w := io.Pipe()
		go func() {
			<-b.released
			_ = w.Close()
		}()
		_, _ = r.Read(make([]byte, 1))
	})
}

func (b *Blocking) foreign(ctx *durable.Context) {
	done := make(chan struct{})
	go func() {
		_, _ = durable.CallActivity(ctx, b.Work, durable.Void{}).Await()
		close(done)
	}()
	select {
	case <-done:
	case <-b.released:
	}
}

// Registry returns a registry with the orchestrators and the activity.
func (b *Blocking) Registry() *durable.Registry {
	return durable.NewRegistry(
		durable.Activity("Work", b.Work),
		durable.Orchestrator("Foreign", b.Foreign), durable.Orchestrator("Channel", b.Channel),
		durable.Orchestrator("Group", b.Group), durable.Orchestrator("Read", b.Read),
	)
}

// maxDelay is longer than a hub's longest delay for messages of an instance that is held.
const maxDelay = 11 * time.Minute

// ExerciseStalls checks that a worker abandons orchestrators that block, and that clients can
// terminate, suspend, resume, rewind and purge their instances. It runs a worker on the hub. Call it
// in a testing/synctest bubble.
func ExerciseStalls(t *testing.T, hub provider.Provider, cfg durable.Config) {
	t.Helper()
	b := &Blocking{released: make(chan struct{})}
	defer close(b.released)
	cfg.Logger = slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	worker := durable.NewWorker(hub, b.Registry(), cfg)
	go func() { ended <- worker.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	c := durable.NewClient(hub, b.Registry())
	time.Sleep(time.Minute) // until the worker owns its partitions
	want := func(when string, id durable.InstanceID, status history.RuntimeStatus) {
		t.Helper()
		if got := must[*durable.InstanceState](t)(c.Status(t.Context(), id, durable.Fetch{})).Status; got != status {
			t.Errorf("%s: %s is %v, want %v", when, id, got, status)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Foreign", "Channel", "Group", "Read"} {
		must[durable.InstanceID](t)(c.StartByName(t.Context(), name, nil, durable.InstanceID(name)))
	}
	time.Sleep(10 * time.Second)
	check(c.Terminate(t.Context(), "Read", "before the worker gives it up"))
	time.Sleep(80 * time.Second)
	want("soon after the worker gave it up", "Foreign", history.Failed)
	want("soon after the worker gave it up", "Read", history.Terminated)
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := durable.InstanceOf[string](c, "Foreign").Wait(limited)
	failed, ok := errors.AsType[*durable.OrchestrationFailedError](err)
	if !ok || failed.Failure == nil || failed.Failure.ErrorType != "*durable.UsageError" || !strings.Contains(failed.Failure.ErrorMessage, "CallActivity was called outside of its orchestrator") {
		t.Errorf("the failure is %v, want a UsageError", err)
	}

	time.Sleep(time.Hour)
	waiting := worker.Blocked()
	if len(waiting) != 2 || !waiting[0].Stalled || !waiting[1].Stalled {
		t.Errorf("held functions are %v, want two that do not yield", waiting)
	}
	check(c.Terminate(t.Context(), "Channel", "after the worker gave it up"))
	check(c.Suspend(t.Context(), "Group", "after the worker gave it up"))
	time.Sleep(time.Second)
	want("after it was terminated", "Channel", history.Terminated)
	want("after it was suspended", "Group", history.Suspended)
	if purged := must[durable.PurgeResult](t)(c.Purge(t.Context(), "Channel")); purged.Instances != 1 {
		t.Errorf("%+v was purged, want one instance", purged)
	}

	b.corrected.Store(true)
	check(c.Resume(t.Context(), "Group", "it is corrected"))
	check(c.Rewind(t.Context(), "Foreign", "it is corrected"))
	time.Sleep(maxDelay)
	want("after it was corrected and resumed", "Group", history.Completed)
	want("after it was corrected and rewound", "Foreign", history.Completed)
	if waiting := worker.Blocked(); len(waiting) != 0 {
		t.Errorf("held functions are still %v", waiting)
	}
}
