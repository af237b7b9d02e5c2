package partition

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A transaction holds many operations. One of them may end an instance for which an earlier one
// stored a timer.
func TestTxn_CancelsATimerThatItHasStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	timer := provider.TaskMessage{Event: &history.TimerFired{}, Target: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}}
	record, err := encodeMessage(timer)
	r.Must(err)
	r.Must(r.writer.Do(t.Context(), func(tx *txn) error {
		tx.addTimer(record, timer, time.Now().Add(time.Hour))
		tx.cancelTimers("a")
		return nil
	}))
	r.wantNoWork()
	r.stop()
	r.close()
	openRig(t, r.disk).wantNoWork()
}

// The operation that stores an activity's result may share a transaction with the checkpoint
// that consumes the result.
func TestTxn_ConsumesAResultThatItHasStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0))
	activity := r.AwaitActivity().Lock.(*activityLock)
	record, err := encodeMessage(provider.TaskMessage{Event: partitiontest.ResultOf(0), Target: activity.waiting})
	r.Must(err)
	activity.deliver(record, history.TypeTaskCompleted)
	r.Must(r.writer.Do(t.Context(), func(tx *txn) error {
		tx.store(activity.a.result)
		tx.consume(activity.a.result)
		return nil
	}))
	r.stop()
	r.close()
	openRig(t, r.disk).wantNoWork()
}
