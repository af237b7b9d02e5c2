package simulated_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
)

// A heldBack has an orchestrator that a worker holds back from its second process on.
type heldBack struct {
	account  *azsim.Account
	cause    string
	started  bool // the instances have a history when they are held back
	isQueued bool // another process sends the starts and the events

	second, corrected atomic.Bool
	released          chan struct{} // closed at the end, to unblock orchestrators
}

func (h *heldBack) isHeldBy(cause string) bool {
	return h.cause == cause && h.second.Load() && !h.corrected.Load()
}

// Held is the orchestrator. With a history, it waits for an event.
func (h *heldBack) Held(ctx *durable.Context, _ durable.Void) (string, error) {
	if h.started && !h.isHeldBy("another code") {
		if _, err := durable.CallActivity(ctx, h.Work, durable.Void{}).Await(); err != nil {
			return "", err
		}
	}
	if h.started {
		if _, err := durable.Event[durable.Void]("go").Wait(ctx).Await(); err != nil {
			return "", err
		}
	}
	if h.isHeldBy("a stall") {
		<-h.released
	}
	return "done", nil
}

// Work is an activity.
func (*heldBack) Work(context.Context, durable.Void) (string, error) { return "done", nil }

// registry returns the functions of a process.
func (h *heldBack) registry() *durable.Registry {
	all := durable.NewRegistry(durable.Activity("Work", h.Work))
	if !h.isHeldBy("an unknown function") {
		all.Add(durable.Orchestrator("Held", h.Held))
	}
	return all
}

// crashFile returns a file in which the orchestrators of instances have crashed the process.
func (h *heldBack) crashFile(t *testing.T, ids []durable.InstanceID) string {
	t.Helper()
	counts := crashes.Counts{}
	for _, id := range ids {
		counts[crashes.WorkName("orchestrator", "Held", "", 0, string(id))] = crashes.Count{Crashes: crashes.Limit, Last: time.Now()}
	}
	text, err := json.Marshal(counts)
	file := filepath.Join(t.TempDir(), "crashes")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// work runs a process with a worker. It returns the client of the process.
func (h *heldBack) work(t *testing.T, name string, registry *durable.Registry, crashFile string) (c *durable.Client, stop func()) {
	t.Helper()
	hub := open(t, h.account.Worker(name), h.account)
	worker := durable.NewWorker(hub, registry, durable.Config{
		Logger: slog.New(slog.DiscardHandler), ExtendedSessionIdle: -1, StallTimeout: 3 * time.Second,
		UnknownFunctionTimeout: -1, HoldNonDeterministic: true, CrashFile: crashFile,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	time.Sleep(time.Minute) // until the worker owns its partitions
	return durable.NewClient(hub, registry), func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// exercise applies verbs to instances that are held back, at different times of their back-off.
func (h *heldBack) exercise(t *testing.T) {
	h.released = make(chan struct{})
	h.account = azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
	defer h.account.End()
	defer close(h.released)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	waits := []time.Duration{time.Second, 10 * time.Second, time.Minute, 30 * time.Minute}
	var ids []durable.InstanceID
	for _, wait := range waits {
		for _, verb := range []string{"terminate", "suspend"} {
			ids = append(ids, durable.InstanceID(fmt.Sprintf("%s after %s", verb, wait)))
		}
	}
	sender := durable.NewClient(open(t, h.account.Worker("sender"), h.account), h.registry())
	begin := func(c *durable.Client) {
		for _, id := range ids {
			_, err := c.StartByName(t.Context(), "Held", nil, id)
			check(err)
		}
	}
	if h.started {
		c, stop := h.work(t, "first", h.registry(), "")
		begin(c)
		time.Sleep(time.Minute)
		stop()
	}
	h.second.Store(true)
	crashFile := ""
	if h.cause == "a crash" {
		crashFile = h.crashFile(t, ids)
	}
	registry := h.registry()
	c, stop := h.work(t, "second", registry, crashFile)
	defer stop()
	from := c
	if h.isQueued {
		from = sender
	}
	if h.started {
		for _, id := range ids {
			check(from.RaiseEvent(t.Context(), id, "go", nil))
		}
	} else {
		begin(from)
	}
	time.Sleep(40 * time.Second) // until a poll receives the messages and the watchdog abandons the code
	want := func(id durable.InstanceID, status history.RuntimeStatus) {
		t.Helper()
		time.Sleep(time.Second)
		state, err := c.Status(t.Context(), id, durable.Fetch{})
		check(err)
		if state.Status != status {
			t.Errorf("%s: %v after a second, want %v", id, state.Status, status)
		}
	}
	began := time.Now()
	for i, wait := range waits {
		time.Sleep(time.Until(began.Add(wait)))
		check(c.Terminate(t.Context(), ids[2*i], "enough"))
		want(ids[2*i], history.Terminated)
		check(c.Suspend(t.Context(), ids[2*i+1], "a pause"))
		want(ids[2*i+1], history.Suspended)
	}
	synctest.Wait()
	h.corrected.Store(true)
	if h.cause == "an unknown function" {
		registry.Add(durable.Orchestrator("Held", h.Held))
	}
	for i := range waits {
		check(c.Resume(t.Context(), ids[2*i+1], "it is corrected"))
		want(ids[2*i+1], history.Completed)
	}
}

// Operators can suspend, resume and terminate an instance that is held back, within a second.
func TestHeldBack_VerbsActWithinASecond(t *testing.T) {
	for _, cause := range []string{"an unknown function", "another code", "a crash", "a stall"} {
		for _, started := range []bool{false, true} {
			if !started && cause == "another code" {
				continue // without a history, no code differs from it
			}
			for _, isQueued := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/started=%t/queued=%t", cause, started, isQueued), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						(&heldBack{cause: cause, started: started, isQueued: isQueued}).exercise(t)
					})
				})
			}
		}
	}
}

// A suspension acts within a second, also if the delay of the start message ends at the same time.
func TestHeldBack_SuspensionsMeetRedeliveredStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heldBack{cause: "an unknown function", account: azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})}
		defer h.account.End()
		h.second.Store(true)
		c, stop := h.work(t, "worker", h.registry(), "")
		defer stop()
		var suspending sync.WaitGroup
		began := time.Now()
		for i := range 400 {
			suspending.Go(func() {
				id := durable.InstanceID(fmt.Sprint("instance ", i))
				if _, err := c.StartByName(t.Context(), "Held", nil, id); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Until(began.Add(2*time.Second + time.Duration(i)*time.Millisecond)))
				if err := c.Suspend(t.Context(), id, "a pause"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				state, err := c.Status(t.Context(), id, durable.Fetch{})
				if err != nil || state.Status != history.Suspended {
					t.Errorf("%s: %v, %v after a second, want %v", id, state.Status, err, history.Suspended)
				}
			})
		}
		suspending.Wait()
	})
}
