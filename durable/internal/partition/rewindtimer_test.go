package partition

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// A failed instance is rewound twice. It has exactly one timer, the one that has not fired,
// also after it resumes and after the hub is reopened.
func TestRewind_RestoresEachTimerOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	created := history.TruncateToTicks(time.Now())
	due := created.Add(time.Hour)
	r.Finish(r.Next(),
		&history.TimerCreated{Header: history.Header{EventID: 0}, FireAt: time.Now()},
		&history.TimerCreated{Header: history.Header{EventID: 1, Timestamp: created}, FireAt: due})
	r.Finish(r.Next(), &history.ExecutionCompleted{Header: history.Header{EventID: 2}, Status: history.Failed})
	r.wantNoWork()
	check := func(when string) {
		t.Helper()
		r.mu.Lock()
		var timers []*message
		if inst := r.instances["a"]; inst != nil {
			timers = slices.Clone(inst.timers)
		}
		r.mu.Unlock()
		if len(timers) != 1 || !timers[0].due.Equal(due) {
			t.Fatalf("%s: the instance has the timers %+v; want one that is due at %v", when, timers, due)
		}
		var m provider.TaskMessage
		r.Must(r.read("look", func(t tables) (err error) {
			m, err = timers[0].load(t)
			return err
		}))
		want := &history.TimerFired{Header: history.NewHeader(created), TimerID: 1, FireAt: due}
		if diff := cmp.Diff(want, m.Event); diff != "" {
			t.Fatalf("%s: the event that it waits for (-want +got):\n%s", when, diff)
		}
	}
	r.Must(r.Rewind(t.Context(), "a", "it was mended"))
	check("rewound")
	r.Must(r.Rewind(t.Context(), "a", "it was mended"))
	check("rewound again before it resumes")
	r.Finish(r.Next())
	if err := r.Rewind(t.Context(), "a", "it was mended"); !errors.Is(err, provider.ErrInstanceChanged) {
		t.Errorf("Rewind of a running instance returned %v; want %v", err, provider.ErrInstanceChanged)
	}
	check("not rewound while it runs")
	r.stop()
	r.close()
	r = openRig(t, r.disk)
	check("opened again")
	r.Must(r.Purge(t.Context(), "a", nil))
	r.wantNoWork()
}

// A timer created in the episode that ends its instance is not stored.
func TestCommit_AnEndLeavesNoTimer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	session := r.Next()
	due := time.Now().Add(time.Hour)
	target := history.OrchestrationInstance{InstanceID: "a", ExecutionID: session.Instance.ExecutionID}
	r.Must(session.Session.Commit(t.Context(), &provider.Checkpoint{
		Instance: target,
		NewEvents: []history.Event{
			session.Messages[0].Event,
			&history.TimerCreated{Header: history.Header{EventID: 0}, FireAt: due},
			&history.ExecutionCompleted{Header: history.Header{EventID: 1}, Status: history.Completed},
		},
		Timers: []provider.TaskMessage{{Event: &history.TimerFired{TimerID: 0, FireAt: due}, Target: target}},
	}))
	r.Must(session.Session.Release(t.Context()))
	r.mu.Lock()
	left := len(r.instances) + len(r.alarms)
	r.mu.Unlock()
	if left > 0 {
		t.Errorf("%d instances with messages or timers are left", left)
	}
}
