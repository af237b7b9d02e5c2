package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestPartition_AStepIsOneGroupAndLeavesNothingInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 3 {
		before := r.groups()
		r.Start("a")
		r.Finish(r.Next(), partitiontest.Scheduled(0))
		for i := range 3 {
			a := r.AwaitActivity()
			var completion sync.WaitGroup
			completion.Go(func() {
				if err := a.Lock.Complete(context.Background(), partitiontest.ResultOf(i)); err != nil {
					t.Error(err)
				}
			})
			item := r.Next()
			if i < 2 {
				r.Finish(item, partitiontest.Scheduled(i+1))
			} else {
				r.Finish(item, partitiontest.Ended())
			}
			completion.Wait()
		}
		// No result needs a group of its own, unless the test runs slowly.
		if n := r.groups() - before; n < 5 || n > 8 {
			t.Errorf("three activities took %d groups, want 5", n)
		}
		r.wantNoWork()
	}
}

func TestPartition_StoresAResultThatNoCheckpointConsumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0))
	r.Raise("a", "keeps it busy")
	item := r.Next()
	r.Must(r.AwaitActivity().Lock.Complete(t.Context(), partitiontest.ResultOf(0)))
	copied := r.disk.copy()
	r.Finish(item)
	r.Finish(r.Next(), partitiontest.Ended())
	r.wantNoWork()

	left := openRig(t, copied) // as after a crash right after Complete
	item = left.Next()
	if len(item.Messages) != 2 {
		t.Errorf("got %d messages, want the event and the result", len(item.Messages))
	}
	left.Finish(item, partitiontest.Ended())
	left.wantNoWork()
}

func TestPartition_TerminatesAScheduledInstanceAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		instance := r.StartAt("a", time.Now().Add(time.Hour))
		r.Raise("a", "early")
		e := &history.ExecutionTerminated{Header: history.NewHeader(time.Now()), Reason: new("changed my mind")}
		r.Must(r.Send(t.Context(), provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: "a"}}))
		s, err := r.Instance(t.Context(), "a", provider.Fetch{Output: true})
		r.Must(err)
		if s.Instance != instance || s.Status != history.Terminated || *s.Output != "changed my mind" || !s.CompletedAt.Equal(e.Timestamp) {
			t.Errorf("the instance is %+v, want it terminated", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if item, err := r.NextOrchestration(ctx); err == nil {
			t.Errorf("%v was dispatched", item.Messages)
		}
		r.groups() // wait until the discarded messages are deleted
		r.wantNoWork()
	})
}

// A client may repeat a start because it does not know the outcome. The repeated start changes
// nothing and returns no error, whatever the instance's status is.
func TestPartition_RecognizesARepeatedStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "O", Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "first"}}
		again := func(when string) {
			t.Helper()
			msg := provider.TaskMessage{Event: start, Target: start.Instance}
			if err := r.StartInstance(t.Context(), msg, []history.RuntimeStatus{history.Pending, history.Running}); err != nil {
				t.Errorf("%s: StartInstance returned %v; want no error", when, err)
			}
		}
		again("the first time")
		again("before it runs")
		r.Finish(r.Next())
		again("when it runs")
		r.Raise("a", "go on")
		item := r.Next()
		time.Sleep(2 * time.Millisecond) // the clock may be coarse
		next := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "O", Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "second"}}
		r.Must(item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: next.Instance, ContinuedAsNew: true, NewEvents: []history.Event{next}}))
		r.Must(item.Session.Release(t.Context()))
		again("after continue-as-new")
		r.Raise("a", "end")
		r.Finish(r.Next(), partitiontest.Ended())
		again("after its end")
		s, err := r.Instance(t.Context(), "a", provider.Fetch{})
		r.Must(err)
		if s.Instance != next.Instance || s.Status != history.Completed {
			t.Errorf("the instance is %+v; want it ended", s)
		}
		start = &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "O", Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "third"}}
		again("after another start")
		if s, err = r.Instance(t.Context(), "a", provider.Fetch{}); err != nil || s.Instance != start.Instance {
			t.Errorf("the instance is %+v (%v); want the one that was started last", s, err)
		}
	})
}

func TestPartition_DeletesTheTimersOfAnEndedInstance(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, last := range []history.Event{partitiontest.Ended(), nil} {
		r.Start("a")
		item := r.Next()
		var timers []history.Event
		for i := range 20 {
			timers = append(timers, &history.TimerCreated{Header: history.Header{EventID: i}, FireAt: time.Now().Add(time.Hour)})
		}
		r.Finish(item, timers...)
		r.Raise("a", "finish")
		item = r.Next()
		if last != nil {
			r.Finish(item, last)
		} else {
			r.Must(r.Purge(t.Context(), "a", nil))
			if err := item.Session.Commit(t.Context(), partitiontest.CheckpointOf(item)); !errors.Is(err, provider.ErrSessionLost) {
				t.Errorf("Commit for a purged instance returned %v, want %v", err, provider.ErrSessionLost)
			}
			r.Must(item.Session.Release(t.Context()))
		}
		r.wantNoWork()
	}
	r.stop()
	r.close()
	left := openRig(t, r.disk)
	left.wantNoWork()
}

// Continue-as-new deletes the timers of the previous generation. The status of the instance
// stays.
func TestPartition_ContinueAsNewDeletesTheTimers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	instance := r.Start("a")
	r.Finish(r.Next(), &history.TimerCreated{Header: history.Header{EventID: 0}, FireAt: time.Now().Add(time.Hour)})
	reason := strings.Repeat("r", 2*maxInline)
	r.Must(r.Send(t.Context(), provider.TaskMessage{Event: &history.ExecutionSuspended{Header: history.NewHeader(time.Now()), Reason: &reason}, Target: instance}))
	item := r.Next()
	r.Must(item.Session.Commit(t.Context(), partitiontest.CheckpointOf(item)))
	instance.ExecutionID = "the next"
	started := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Orchestrator", Instance: instance}
	r.Must(item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: instance, ContinuedAsNew: true, NewEvents: []history.Event{started}}))
	r.Must(item.Session.Release(t.Context()))
	r.wantNoWork()
	s, err := r.Instance(t.Context(), "a", provider.Fetch{Output: true})
	r.Must(err)
	if s.Instance != instance || s.Output == nil || *s.Output != reason {
		t.Errorf("the instance is %+v; want the next generation with the reason of the suspension", s)
	}
}

func TestPartition_DispatchesManyMessagesInParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	const n = 2*maxMessages + 10
	var all sync.WaitGroup
	for s := range 10 {
		all.Go(func() {
			for i := range n / 10 {
				r.Raise("a", fmt.Sprintf("%d.%d", s, i))
			}
		})
	}
	all.Wait()
	seen := make(map[string]bool)
	for len(seen) < n {
		item := r.Next()
		if len(item.Messages) > maxMessages {
			t.Errorf("%d messages were dispatched at once; want at most %d", len(item.Messages), maxMessages)
		}
		for _, m := range item.Messages {
			if e, ok := m.Event.(*history.EventRaised); ok {
				if seen[e.Name] {
					t.Errorf("event %s was dispatched twice", e.Name)
				}
				seen[e.Name] = true
			}
		}
		r.Finish(item)
	}
	r.wantNoWork()
}

func TestPartition_KeepsDeliveryCountsAcrossAClose(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0), partitiontest.Scheduled(1))
	if a := r.AwaitActivity(); a.Attempt != 1 || a.Task.EventID != 0 {
		t.Fatalf("got attempt %d of %d", a.Attempt, a.Task.EventID)
	}
	r.stop()
	r.close()
	r = openRig(t, r.disk)
	attempts := make(map[int]int)
	for range 2 {
		a := r.AwaitActivity()
		attempts[a.Task.EventID] = a.Attempt
		r.Must(a.Lock.Complete(t.Context(), partitiontest.ResultOf(a.Task.EventID)))
	}
	if attempts[0] != 2 || attempts[1] != 1 {
		t.Errorf("the attempts are %v; want 2 for the dispatched activity and 1 for the other one", attempts)
	}
}

// Close is called while the result of an old activity waits for its group. Close must store
// delivery counts after that result, and only for activities that are not done. Otherwise the
// completed activity would run again.
func TestPartition_CloseDoesNotRestoreAnActivityThatIsBeingCompleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0), partitiontest.Scheduled(1))
	r.stop()
	r.close() // both activities are in the base
	synctest.Test(t, func(t *testing.T) {
		h, err := r.disk.openWith(Config{DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- h.Run(ctx) }()
		r := &rig{Stage: &partitiontest.Stage{T: t, Hub: h}, Partition: h, disk: r.disk}
		a, other := r.AwaitActivity(), r.AwaitActivity()
		if a.Task.EventID != 0 || other.Task.EventID != 1 {
			t.Fatalf("got activities %d and %d, want 0 and 1", a.Task.EventID, other.Task.EventID)
		}
		cancel()
		r.Must(<-stopped)
		completed := make(chan error)
		go func() { completed <- a.Lock.Complete(t.Context(), partitiontest.ResultOf(0)) }()
		synctest.Wait() // until the result waits to be written
		closed := make(chan error)
		go func() { closed <- closeAll(h) }()
		r.Must(<-completed)
		r.Must(<-closed)
		r.disk.open = false
	})

	r = openRig(t, r.disk)
	totals, err := r.Totals(t.Context())
	r.Must(err)
	if totals.Activities != 1 || totals.Messages != 1 {
		t.Errorf("the hub has %d activities and %d messages; want 1 of each", totals.Activities, totals.Messages)
	}
	a := r.AwaitActivity()
	if a.Task.EventID != 1 || a.Attempt != 2 {
		t.Errorf("got attempt %d of activity %d; want attempt 2 of the uncompleted one", a.Attempt, a.Task.EventID)
	}
	r.Must(a.Lock.Complete(t.Context(), partitiontest.ResultOf(a.Task.EventID)))
}

func TestPartition_FiresDistantTimersOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, err := newDisk().openWith(Config{DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		r := &rig{Stage: &partitiontest.Stage{T: t, Hub: h}, Partition: h}
		r.Start("a")
		item, err := h.NextOrchestration(ctx)
		r.Must(err)
		var timers []history.Event
		for i, after := range []time.Duration{72 * time.Hour, time.Second, 5 * time.Minute} {
			timers = append(timers, &history.TimerCreated{Header: history.Header{EventID: i}, FireAt: time.Now().Add(after)})
		}
		r.Finish(item, timers...)
		for _, want := range []int{1, 2, 0} {
			item, err := h.NextOrchestration(ctx)
			r.Must(err)
			fired := item.Messages[0].Event.(*history.TimerFired)
			if late := time.Since(fired.FireAt); fired.TimerID != want || late < 0 || late > time.Second {
				t.Errorf("timer %d fired %v late; want timer %d", fired.TimerID, late, want)
			}
			r.Finish(item)
		}
		cancel()
		r.Must(<-done)
		r.Must(closeAll(h))
	})
}

func TestPartition_AwaitEndReturnsWhenTheInstanceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if err := r.AwaitEnd(t.Context(), "nobody"); !errors.Is(err, provider.ErrInstanceNotFound) {
			t.Errorf("unknown instance: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		r.Start("a")
		if err := r.AwaitEnd(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("running instance: %v", err)
		}
		for _, end := range []func(){
			func() { r.Finish(r.Next(), partitiontest.Ended()) },
			func() { r.Must(r.Purge(t.Context(), "a", nil)) },
			func() { r.Start("a") },
		} {
			r.Start("a")
			told := make(chan error, 2)
			for range 2 {
				go func() { told <- r.AwaitEnd(t.Context(), "a") }()
			}
			for waiting := 0; waiting < 2; {
				r.mu.Lock()
				waiting = len(r.waiters["a"])
				r.mu.Unlock()
			}
			end()
			for range 2 {
				if err := <-told; err != nil && !errors.Is(err, provider.ErrInstanceNotFound) {
					t.Errorf("got %v", err)
				}
			}
		}
		r.Finish(r.Next(), partitiontest.Ended())
		r.Must(r.AwaitEnd(t.Context(), "a"))
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.waiters) > 0 {
			t.Errorf("%d instances still have waiters", len(r.waiters))
		}
	})
}

func TestPartition_RevokesLocksAfterTheDrainTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.DrainTimeout = 10 * time.Millisecond
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0))
	r.Raise("a", "Event")
	late, lateActivity := r.Next(), r.AwaitActivity()
	r.stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Partition.Run(ctx) }()

	item, again := r.Next(), r.AwaitActivity()
	if again.Attempt != 2 {
		t.Errorf("the activity's attempt is %d; want 2", again.Attempt)
	}
	if err := late.Session.Commit(t.Context(), partitiontest.CheckpointOf(late)); !errors.Is(err, provider.ErrSessionLost) {
		t.Errorf("the late commit returned %v; want %v", err, provider.ErrSessionLost)
	}
	r.Must(late.Session.Abandon(t.Context(), provider.ErrSessionLost))
	r.Must(late.Session.Release(t.Context()))
	r.Finish(item)
	if err := late.Session.Commit(t.Context(), partitiontest.CheckpointOf(late)); !errors.Is(err, provider.ErrSessionLost) {
		t.Errorf("the late commit returned %v; want %v", err, provider.ErrSessionLost)
	}

	// The first Complete of an activity counts; later ones succeed without effect.
	r.Must(lateActivity.Lock.Complete(t.Context(), partitiontest.ResultOf(0)))
	r.Must(again.Lock.Complete(t.Context(), partitiontest.ResultOf(0)))
	item = r.Next()
	if len(item.Messages) != 1 {
		t.Errorf("got %v; want one result", item.Messages)
	}
	r.Finish(item, partitiontest.Ended())
	r.wantNoWork()
	cancel()
	r.Must(<-done)
}

// A call that is canceled at the instant when work arrives must not consume the wake-up of
// another call.
func TestPartition_ACanceledCallDoesNotConsumeAWakeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 300 {
			ctx, cancel := context.WithCancel(t.Context())
			fickle := make(chan *provider.OrchestrationWorkItem, 1)
			steady := make(chan *provider.OrchestrationWorkItem, 1)
			wait := func(ctx context.Context, got chan *provider.OrchestrationWorkItem) {
				item, _ := r.NextOrchestration(ctx) // nil if ctx has ended
				got <- item
			}
			go wait(ctx, fickle)
			steadyCtx, stop := context.WithTimeout(t.Context(), time.Minute)
			go wait(steadyCtx, steady)
			go cancel()
			r.Start(fmt.Sprint("a", i))
			item := <-fickle
			if item == nil {
				if item = <-steady; item == nil {
					t.Fatal("no call received the instance")
				}
			} else {
				stop()
				<-steady
			}
			stop()
			r.Finish(item, partitiontest.Ended())
		}
	})
}

// The start of a child waits for the end of another execution. Messages that were sent before the start are
// discarded. Later messages are delivered to the child. A purge also deletes the start, although the session has
// read it.
func TestPartition_AStartThatReplacesAnEndedExecutionComesWithLaterMessages(t *testing.T) {
	t.Parallel()
	for _, purges := range []bool{false, true} {
		r := newRig(t)
		r.Start("a")
		item := r.Next()
		start := &history.ExecutionStarted{
			Header: history.NewHeader(time.Now()), Name: "Child", Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "new"},
			Parent: &history.ParentInstance{Instance: history.OrchestrationInstance{InstanceID: "parent", ExecutionID: "p"}},
		}
		for range map[bool]int{true: 1, false: maxMessages + 1}[purges] { // the session receives not all of them
			r.Raise("a", "before")
		}
		r.Must(r.Send(t.Context(), provider.TaskMessage{Event: start, Target: start.Instance}))
		r.Raise("a", "after")
		if purges {
			s := &session{p: r.Partition, inst: r.instances["a"], changed: make(chan struct{}, 1)}
			waiting := slices.Clone(r.instances["a"].inbox)
			r.Finish(item, partitiontest.Ended())
			r.Must(r.Purge(t.Context(), "a", nil))
			r.Must(s.replace(t.Context(), classified{discard: waiting[:1], replace: waiting[1:2]}))
			if _, err := r.Instance(t.Context(), "a", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
				t.Errorf("the purged instance: %v; want %v", err, provider.ErrInstanceNotFound)
			}
		} else {
			r.Finish(item, partitiontest.Ended())
			item = r.Next()
			if len(item.Messages) != 2 || item.Messages[0].Target != start.Instance || len(item.History) > 0 {
				t.Fatalf("dispatched %v after %d events; want the start and one event", item.Messages, len(item.History))
			}
			if e, ok := item.Messages[1].Event.(*history.EventRaised); !ok || e.Name != "after" {
				t.Errorf("the second message is %v; want the event after the start", item.Messages[1].Event)
			}
			r.Finish(item, partitiontest.Ended())
		}
		r.stop()
		r.close()
	}
}
