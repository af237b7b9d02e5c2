package partition

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// endsPause returns the messages that end the pause of an instance.
func endsPause(id string) map[string]provider.TaskMessage {
	all := map[string]provider.TaskMessage{}
	for name, e := range map[string]history.Event{
		"terminate": &history.ExecutionTerminated{Header: history.NewHeader(time.Now())},
		"suspend":   &history.ExecutionSuspended{Header: history.NewHeader(time.Now())},
		"resume":    &history.ExecutionResumed{Header: history.NewHeader(time.Now())},
	} {
		all[name] = provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: id}}
	}
	return all
}

// abandonAll abandons an instance until its pause is at least 4 s.
func (r *rig) abandonAll(id string) {
	r.Helper()
	for item := r.Next(); ; item = r.Next() {
		if item.Instance.InstanceID != id {
			r.Fatalf("instance %q was dispatched", item.Instance.InstanceID)
		}
		r.Must(item.Session.Abandon(r.Context(), errors.New("no code")))
		r.Must(item.Session.Release(r.Context()))
		r.mu.Lock()
		wait := time.Until(r.instances[id].pause.at)
		r.mu.Unlock()
		if wait >= 4*time.Second {
			return
		}
	}
}

func TestPartition_TerminationSuspensionAndResumptionEndThePause(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"terminate", "suspend", "resume"} {
		synctest.Test(t, func(t *testing.T) {
			r := openRig(t, newDisk())
			r.Start("a")
			for i := range maxMessages + 10 { // more than one session takes
				r.Raise("a", fmt.Sprint(i))
			}
			r.abandonAll("a")
			began := time.Now()
			control := endsPause("a")[name]
			r.Must(r.Send(t.Context(), control))
			item := r.Next()
			if waited := time.Since(began); waited > 0 {
				t.Errorf("%s: the instance was dispatched after %v; want immediately", name, waited)
			}
			if !slices.ContainsFunc(item.Messages, func(m provider.TaskMessage) bool { return m.Event.Type() == control.Event.Type() }) {
				t.Errorf("%s: the session does not contain the message", name)
			}
			// The message has been dispatched: the instance pauses again.
			r.Must(item.Session.Abandon(t.Context(), errors.New("no code")))
			r.Must(item.Session.Release(t.Context()))
			began = time.Now()
			r.Raise("a", "another")
			r.Next()
			if waited := time.Since(began); waited < 4*time.Second {
				t.Errorf("%s: an event ended the pause after %v", name, waited)
			}
		})
	}
}

func TestPartition_TerminationDuringASessionPreventsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, newDisk())
		r.Start("a")
		r.abandonAll("a")
		time.Sleep(time.Hour)
		item := r.Next()
		began := time.Now()
		r.Must(r.Send(t.Context(), endsPause("a")["terminate"]))
		r.Must(item.Session.Abandon(t.Context(), errors.New("no code")))
		r.Must(item.Session.Release(t.Context()))
		r.Next()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the instance was dispatched after %v; want immediately", waited)
		}
	})
}

func TestPartition_AbandonDelayDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	c := Config{AbandonDelay: time.Second, MaxAbandonDelay: 5 * time.Second}
	for attempt, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 5, 1000000: 5} {
		if got := c.abandonDelay(attempt); got != want*time.Second {
			t.Errorf("the delay of attempt %d is %v; want %v", attempt, got, want*time.Second)
		}
	}
}

// The delay depends on the abandoned sessions since the last checkpoint or restart, not on
// those before.
func TestPartition_ACheckpointOrARestartResetsTheAbandonDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, newDisk())
		r.Start("a")
		item := r.Next()
		for _, getsOn := range []func(){
			func() {},
			func() { r.Raise("a", "E"); r.Finish(item); item = r.Next() },
			func() {
				r.Must(item.Session.Abandon(t.Context(), errors.New("it cannot be done")))
				r.Must(item.Session.Release(t.Context()))
				r.Start("a") // replaces the instance
				item = r.Next()
			},
		} {
			getsOn()
			for want := time.Millisecond; want < 10*time.Millisecond; want *= 2 {
				r.Must(item.Session.Abandon(t.Context(), errors.New("it cannot be done")))
				r.Must(item.Session.Release(t.Context()))
				began := time.Now()
				item = r.Next()
				if took := time.Since(began); took != want {
					t.Errorf("abandoned work was dispatched again after %v; want %v", took, want)
				}
			}
		}
	})
}
