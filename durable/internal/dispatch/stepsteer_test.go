package dispatch_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// steeredWorker is a worker whose sessions run hooks. A nil hook does nothing.
type steeredWorker struct {
	provider.Worker
	holds  func()                     // before the session reports that it has its instance
	next   func(context.Context)      // before the session takes messages that have arrived
	commit func([]history.Event) bool // before a commit of these events; it fails if commit returns false
}

func (w *steeredWorker) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item, err := w.Worker.NextOrchestration(ctx)
	if err == nil {
		item.Session = steeredSession{item.Session, w}
	}
	return item, err
}

type steeredSession struct {
	provider.Session
	worker *steeredWorker
}

func (s steeredSession) Holds() bool {
	if s.worker.holds != nil {
		s.worker.holds()
	}
	return true
}

func (s steeredSession) Leaves() (left time.Duration, ok bool) { return 0, false }

func (s steeredSession) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	if s.worker.next != nil {
		s.worker.next(ctx)
	}
	if ctx.Err() != nil { // messages that have arrived are delivered although the wait has ended
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
		defer cancel()
		ctx = late
	}
	return s.Session.Next(ctx, idle)
}

func (s steeredSession) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	if s.worker.commit != nil && !s.worker.commit(cp.NewEvents) {
		return memhub.ErrInjected
	}
	return s.Session.Commit(ctx, cp)
}

// suspendedBesideAReadyStep returns a worker that delivers a suspension when a step has become ready. The
// caller sends the suspension in the first second of the step. Held is called before each further step starts.
func suspendedBesideAReadyStep(b *bench, held func()) *steeredWorker {
	var first, arrived sync.Once
	return &steeredWorker{
		Worker: b.Hub.Worker,
		holds: func() {
			wait := held
			first.Do(func() { wait = func() { time.Sleep(time.Second) } })
			wait()
		},
		next: func(ctx context.Context) { arrived.Do(func() { <-ctx.Done() }) },
	}
}

// The message may be a suspension.
func TestSteps_ThatAreReadyBesideAMessageDoNotStart(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		d, _ := b.workOn(suspendedBesideAReadyStep(b, func() {}), one(func(x *replay.Execution, _ *string) (*string, error) {
			text := resultOf(step(x, "A", returns(&runs, time.Second, "a"), atMostOnce))
			return &text, nil
		}))
		b.start("i", "O", nil)
		time.Sleep(500 * time.Millisecond)
		b.send("i", &history.ExecutionSuspended{})
		time.Sleep(time.Minute)
		if types := b.types("i"); runs.Load() != 0 || strings.Contains(types, "TaskScheduled") || !strings.Contains(types, "ExecutionSuspended") {
			t.Errorf("%d runs while the instance is suspended: %s", runs.Load(), types)
		}
		if n := d.ActivitySlotsInUse(); n != 0 {
			t.Errorf("%d slots are in use", n)
		}
		b.send("i", &history.ExecutionResumed{})
		b.wantOutput("i", history.Completed, "a")
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
	})
}

// While the session checks that it may start a step, another step returns to the front of the queue.
func TestSteps_EachStartOnceIfTheQueueChanges(t *testing.T) {
	bubble(t, func(b *bench) {
		var first, second atomic.Int64
		b.workOn(suspendedBesideAReadyStep(b, func() { time.Sleep(10 * time.Second) }), one(func(x *replay.Execution, _ *string) (*string, error) {
			one, other := step(x, "A", returns(&first, time.Second, "a"), atMostOnce), step(x, "B", returns(&second, time.Second, "b"))
			text := resultOf(one) + resultOf(other)
			return &text, nil
		}), extendedSessions)
		b.start("i", "O", nil)
		time.Sleep(500 * time.Millisecond)
		b.send("i", &history.ExecutionSuspended{})
		time.Sleep(5 * time.Second)
		b.send("i", &history.ExecutionResumed{})
		b.wantOutput("i", history.Completed, "ab")
		if first.Load() != 1 || second.Load() != 1 {
			t.Errorf("%d runs of A and %d of B, want 1 of each", first.Load(), second.Load())
		}
	})
}

func TestSteps_StartAgainWhenTheResumptionIsStored(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		var failed sync.Once
		w := &steeredWorker{
			Worker: b.Hub.Worker,
			holds:  func() { time.Sleep(time.Second) },
			commit: func(events []history.Event) bool {
				stores := true
				if slices.ContainsFunc(events, func(e history.Event) bool { return e.Type() == history.TypeExecutionResumed }) {
					failed.Do(func() {
						time.Sleep(time.Minute) // real time: it runs in a bubble
						if stores = false; runs.Load() != 0 {
							t.Error("the step runs before the resumption is stored")
						}
					})
				}
				return stores
			},
		}
		b.workOn(w, inARow(1, &runs, time.Second), extendedSessions)
		b.start("i", "O", nil)
		time.Sleep(500 * time.Millisecond)
		b.send("i", &history.ExecutionSuspended{})
		time.Sleep(5 * time.Second)
		b.send("i", &history.ExecutionResumed{})
		b.wantOutput("i", history.Completed, "0")
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
	})
}

func TestSteps_DoNotCountAsWaitingWhileTheyRun(t *testing.T) {
	bubble(t, func(b *bench) {
		var runs atomic.Int64
		d := b.dispatcher(inARow(1, &runs, time.Hour), func(c *dispatch.Config) { c.MaxConcurrentActivities = 1 })
		const key = "sessions waiting for steps"
		b.start("i", "O", nil)
		time.Sleep(time.Minute)
		b.start("j", "O", nil)
		time.Sleep(time.Minute)
		if n := d.InUse()[key]; n != 1 {
			t.Errorf("%d %s, want 1", n, key)
		}
		time.Sleep(time.Hour)
		if n := d.InUse()[key]; n != 0 || runs.Load() != 2 {
			t.Errorf("%d %s, want none; %d runs", n, key, runs.Load())
		}
		b.wantOutput("j", history.Completed, "0")
	})
}
