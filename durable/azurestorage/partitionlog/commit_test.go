package partitionlog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Activities are dispatched only after the log contains the step that scheduled them, however long
// the append takes.
func TestCommit_DispatchesActivitiesOnlyAfterTheirStepIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const appending = 2 * time.Second
		s := &simulated{T: t, account: azsim.New(azsim.Config{Delay: func(r azsim.Request, _ int) time.Duration {
			if r.Operation == "AppendBlock" {
				return appending
			}
			return 0
		}})}
		h, _ := s.open("w")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(time.Minute) // until the worker owns the partitions
		instance := history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
		if err := h.StartInstance(ctx, provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
			t.Fatal(err)
		}
		item, err := h.NextOrchestration(ctx)
		if err != nil {
			t.Fatal(err)
		}
		task := &history.TaskScheduled{Header: history.NewHeader(time.Now()), Name: "Greet"}
		committed := make(chan error, 1)
		began := time.Now()
		go func() {
			committed <- item.Session.Commit(ctx, &provider.Checkpoint{
				Instance: item.Instance, NewEvents: []history.Event{item.Messages[0].Event, task},
				Activities: []provider.TaskMessage{{Event: task, Target: item.Instance}},
			})
		}()
		activity, err := h.NextActivity(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if after := time.Since(began); after < appending {
			t.Errorf("the activity was dispatched after %v; the append takes %v", after, appending)
		}
		if err := <-committed; err != nil {
			t.Error(err)
		}
		if err := errors.Join(activity.Lock.Abandon(ctx, nil), item.Session.Release(ctx)); err != nil {
			t.Error(err)
		}
		cancel()
		if err := errors.Join(<-ended, h.Close()); err != nil {
			t.Error(err)
		}
		s.account.Wait()
	})
}
