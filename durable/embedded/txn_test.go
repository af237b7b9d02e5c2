package embedded

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// One transaction can be that of many operations. One of them may end an instance for
// which another has just stored a timer.
func TestTxn_CancelsATimerThatItHasStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	timer := provider.TaskMessage{Event: &history.TimerFired{}, Target: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}}
	record, err := encodeMessage(timer)
	r.must(err)
	r.must(r.writer.Do(t.Context(), func(tx *txn) error {
		tx.addTimer(record, timer, time.Now().Add(time.Hour))
		tx.cancelTimers("a")
		return nil
	}))
	r.forgets()
	r.stop()
	r.must(r.Close())
	openRig(t, r.path).forgets()
}

// The operation that stores the result of an activity may be in one transaction with
// the checkpoint that takes it.
func TestTxn_TakesAResultThatItHasStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start("a")
	r.finish(r.next(), scheduled(0))
	activity := r.nextActivity().Lock.(*activityLock)
	record, err := encodeMessage(provider.TaskMessage{Event: resultOf(0), Target: activity.waiting})
	r.must(err)
	activity.deliver(record, history.TypeTaskCompleted)
	r.must(r.writer.Do(t.Context(), func(tx *txn) error {
		tx.store(activity.a.result)
		tx.consume(activity.a.result)
		return nil
	}))
	r.stop()
	r.must(r.Close())
	openRig(t, r.path).forgets()
}
