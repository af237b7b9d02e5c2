package partition

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
)

// An event arrives while steps run, and the session cannot deliver it: its read fails, or the partition
// starts to drain during the read. The session then commits the result of a step. The event is delivered
// later.
func TestSession_KeepsAnEventThatNextCannotDeliver(t *testing.T) {
	t.Parallel()
	for _, drains := range []bool{false, true} {
		var duringRead func() error // called by the next read
		cfg := rigConfig()
		cfg.DrainTimeout = time.Hour // the drain ends when the session is released
		cfg.Readable = func() error {
			if f := duringRead; f != nil {
				duringRead = nil
				return f()
			}
			return nil
		}
		r := openRigWith(t, newDisk(), cfg)
		r.Start("a")
		item := r.Next()
		cp := partitiontest.CheckpointOf(item, partitiontest.Scheduled(0))
		cp.Activities, cp.StepsRunning = nil, true
		r.Must(item.Session.Commit(t.Context(), cp))
		r.Raise("a", "E")
		stopped := make(chan struct{})
		duringRead = func() error {
			if !drains {
				return errors.New("the base cannot be read")
			}
			go func() { defer close(stopped); r.stop() }()
			for r.isServing() {
				runtime.Gosched()
			}
			return nil
		}
		messages, err := item.Session.Next(t.Context(), time.Minute)
		if len(messages) > 0 || (err == nil) != drains {
			t.Fatalf("drains = %v: Next returned %d messages and error %v; want no message, and an error if the read fails", drains, len(messages), err)
		}
		item.Messages, cp.NewEvents = nil, []history.Event{partitiontest.ResultOf(0)}
		cp.StepsRunning = false
		r.Must(item.Session.Commit(t.Context(), cp))
		r.Must(item.Session.Release(t.Context()))
		if drains {
			<-stopped
			r.close()
			r = openRig(t, r.disk)
		}
		if item, err = r.NextOrchestration(patience.Context(t)); err != nil {
			t.Errorf("drains = %v: the event is lost", drains)
			continue
		}
		if len(item.Messages) != 1 || item.Messages[0].Event.Type() != history.TypeEventRaised {
			t.Errorf("drains = %v: got %v; want the event", drains, item.Messages)
		}
		r.Finish(item, partitiontest.Ended())
		r.wantNoWork()
	}
}

// isServing reports whether the partition dispatches work.
func (r *rig) isServing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serves()
}
