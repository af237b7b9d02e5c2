package partition

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// breakDisk makes writes to the log fail until repairDisk is called.
func (r *rig) breakDisk() (repairDisk func()) {
	r.disk.off.Store(true)
	return func() { r.disk.off.Store(false) }
}

func TestPartition_LosesNothingWhileItCannotWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0))
	r.Raise("a", "Event")
	a, item := r.AwaitActivity(), r.Next()

	repairDisk := r.breakDisk()
	before, err := r.History(t.Context(), "a")
	r.Must(err)
	if err := item.Session.Commit(t.Context(), partitiontest.CheckpointOf(item, partitiontest.Scheduled(1))); err == nil || errors.Is(err, provider.ErrSessionLost) {
		t.Errorf("Commit returned %v; want the disk's error", err)
	}
	for range 2 {
		if err := a.Lock.Complete(t.Context(), partitiontest.ResultOf(0)); err == nil {
			t.Error("Complete returned no error")
		}
	}
	start := &history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "b", ExecutionID: "x"}}
	if err := r.StartInstance(t.Context(), provider.TaskMessage{Event: start, Target: start.Instance}, nil); err == nil {
		t.Error("StartInstance returned no error")
	}
	if after, err := r.History(t.Context(), "a"); err != nil || len(after) != len(before) {
		t.Errorf("the history has %d events (%v); want %d", len(after), err, len(before))
	}
	if _, err := r.Instance(t.Context(), "b", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		t.Errorf("the instance whose start failed: %v", err)
	}
	if err := r.Check(t.Context()); err == nil {
		t.Error("Check returned no error")
	}
	repairDisk()
	r.Must(r.Check(t.Context()))

	r.Must(item.Session.Abandon(t.Context(), err))
	r.Must(a.Lock.Abandon(t.Context(), err))
	r.Must(item.Session.Release(t.Context()))
	item = r.Next()
	if len(item.Messages) != 1 || item.Messages[0].Event.Type() != history.TypeEventRaised {
		t.Errorf("got %v; want only the event", item.Messages)
	}
	r.Finish(item, partitiontest.Scheduled(1))
	for range 2 {
		a := r.AwaitActivity()
		if want := 2 - a.Task.EventID; a.Attempt != want {
			t.Errorf("attempt of %d is %d, want %d", a.Task.EventID, a.Attempt, want)
		}
		r.Must(a.Lock.Complete(t.Context(), partitiontest.ResultOf(a.Task.EventID)))
	}
	for got := 0; got < 2; {
		item := r.Next()
		got += len(item.Messages)
		r.Finish(item)
	}
	r.Raise("a", "finish")
	r.Finish(r.Next(), partitiontest.Ended())
	r.wantNoWork()
}

// If the write of a result fails while an episode consumes the result, the result is not lost
// and the activity does not run again.
func TestPartition_AResultInFlightSurvivesAFailedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Start("a")
		r.Finish(r.Next(), partitiontest.Scheduled(0))
		a := r.AwaitActivity()
		repairDisk := r.breakDisk()
		failed := make(chan error)
		go func() { failed <- a.Lock.Complete(context.Background(), partitiontest.ResultOf(0)) }()
		item := r.Next() // before the hub tries to store the result
		if err := <-failed; err == nil {
			t.Error("Complete returned no error")
		}
		repairDisk()
		r.Must(a.Lock.Abandon(t.Context(), errors.New("its result could not be sent")))
		r.Finish(item, partitiontest.Ended())
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if a, err := r.NextActivity(ctx); err == nil {
			t.Errorf("attempt %d of the activity was dispatched", a.Attempt)
		}
		r.Must(a.Lock.Complete(t.Context(), partitiontest.ResultOf(0))) // an engine may repeat the call
		r.wantNoWork()
	})
}
