package azurestorage

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// control sends a suspension or a resumption.
func control(t *testing.T, h *TaskHub, id string, event history.Event) {
	t.Helper()
	if err := h.Send(t.Context(), provider.TaskMessage{Target: history.OrchestrationInstance{InstanceID: id}, Event: event}); err != nil {
		t.Fatal(err)
	}
}

// mustAbandon abandons the messages of the next instance. It returns the time.
func mustAbandon(t *testing.T, h *TaskHub) time.Time {
	t.Helper()
	item := mustNext(t, h)
	if err := errors.Join(item.Session.Abandon(t.Context(), errLost), item.Session.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// A hidden start is delivered with a suspension, which names no execution, although the ID has the history
// of an ended execution.
func TestHiddenMessages_AStartIsDeliveredWithASuspension(t *testing.T) {
	for name, replaces := range map[string]bool{"a new instance": false, "an instance that replaces another": true} {
		t.Run(name, func(t *testing.T) {
			inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
				if replaces {
					done := starting(t, h, startMessage("i", "e1", `1`))
					item := mustNext(t, h)
					commitEnd(t, item, 0, `1`)
					if err := errors.Join(<-done, item.Session.Release(t.Context())); err != nil {
						t.Fatal(err)
					}
				}
				done := starting(t, h, startMessage("i", "e2", `1`))
				abandoned := mustAbandon(t, h)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				control(t, h, "i", &history.ExecutionSuspended{Header: history.NewHeader(time.Now())})
				item := mustNext(t, h)
				if got := eventTypes(item.Messages); got != "ExecutionStarted ExecutionSuspended " || item.Instance.ExecutionID != "e2" || len(item.History) != 0 {
					t.Errorf("delivered %sto %v with %d past events; want the start and the suspension of e2", got, item.Instance, len(item.History))
				}
				if n := item.Session.(*session).Current[0].DequeueCount; n != 2 {
					t.Errorf("the start counts %d receives, want 2", n)
				}
				if late := time.Since(abandoned); late >= time.Second {
					t.Errorf("they were delivered after %v, which is the delay of the start", late)
				}
			})
		})
	}
}

// After a failed request, the next suspension is delivered with the start.
func TestHiddenMessages_AreKeptIfTheyCannotBeReceived(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var rejects atomic.Bool
		counter := newCounter(t)
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "UpdateMessage" && rejects.Load() {
				return azuritetest.ErrorResponse(req, http.StatusForbidden, "AuthorizationFailure"), nil
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := idleInstanceIn(t, cfg, "warm-up")
		done := starting(t, h, startMessage("i", "e1", `1`))
		for range 3 {
			mustAbandon(t, h)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		rejects.Store(true)
		control(t, h, "i", &history.ExecutionSuspended{Header: history.NewHeader(time.Now())})
		time.Sleep(time.Second)
		rejects.Store(false)
		control(t, h, "i", &history.ExecutionSuspended{Header: history.NewHeader(time.Now())})
		if got := eventTypes(mustNext(t, h).Messages); got != "ExecutionStarted ExecutionSuspended " {
			t.Errorf("delivered %s", got)
		}
	})
}

// A suspension acts on a running instance at once, although the start of another execution is hidden. Its
// client has not inserted a row, so the start is hidden for minutes.
func TestHiddenMessages_AStartOfAnotherExecutionDoesNotDelayASuspension(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "i")
		if err := h.Send(t.Context(), startMessage("i", "another", `1`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		control(t, h, "i", &history.ExecutionSuspended{Header: history.NewHeader(time.Now())})
		sent := time.Now()
		item := mustNext(t, h)
		if got := eventTypes(item.Messages); got != "ExecutionSuspended " || len(item.History) == 0 {
			t.Errorf("delivered %sto an instance with %d past events; want the suspension of the running instance", got, len(item.History))
		}
		if late := time.Since(sent); late > time.Second {
			t.Errorf("the suspension was delivered after %v", late)
		}
	})
}

// Suspensions and resumptions of an instance that has not started are delivered again only when their own
// delays end: 5 to 12 times in ten minutes.
func TestHiddenMessages_WithoutAStartDoNotEndEachOthersDelays(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := idleInstanceIn(t, cfg, "warm-up")
		counter.Reset()
		const pairs = 15
		for range pairs {
			control(t, h, "i", &history.ExecutionSuspended{Header: history.NewHeader(time.Now())})
			control(t, h, "i", &history.ExecutionResumed{Header: history.NewHeader(time.Now())})
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		n := counter.Total(func(c azuritetest.Call) bool { return c.Name == "UpdateMessage" })
		if least, most := 2*pairs*5, 2*pairs*12; n < least || n > most {
			t.Errorf("%d messages were updated %d times in 10 minutes, want %d to %d", 2*pairs, n, least, most)
		}
	})
}

// A start that this process hides is not missing, and is not sent again.
func TestHiddenMessages_AHiddenStartIsNotMissing(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		done := starting(t, h, startMessage("i", "e1", `1`))
		began := time.Now()
		for time.Since(began) < interruptedAfter {
			mustAbandon(t, h)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		place, err := h.QueuePosition(t.Context(), "i")
		if err != nil || place.StartMissing {
			t.Errorf("the position is %+v, %v; want a start that is not missing", place, err)
		}
		pending := &provider.InstanceState{Instance: startMessage("i", "e1", `1`).Target, Status: history.Pending}
		if err := h.starts.resendPending(t.Context(), pending); err != nil || logged(h, "sending its start again") {
			t.Errorf("the start was sent again, %v", err)
		}
	})
}

// A session receives the hidden messages of its instance after a resumption.
func TestHiddenMessages_ASessionReceivesThemAfterAResumption(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "i")
		raise(t, h, "i", "a", `1`)
		abandoned := mustAbandon(t, h)
		raise(t, h, "i", "b", `1`)
		item := mustNext(t, h)
		control(t, h, "i", &history.ExecutionResumed{Header: history.NewHeader(time.Now())})
		var got string
		for n := 0; n < 2; {
			messages, err := item.Session.Next(t.Context(), time.Until(abandoned.Add(time.Second)))
			if err != nil || len(messages) == 0 {
				t.Fatalf("the session received %s and %v; want the event before its delay ends", got, err)
			}
			n, got = n+len(messages), got+eventTypes(messages)
		}
		if got != "ExecutionResumed EventRaised " {
			t.Errorf("the session received %s", got)
		}
	})
}

// A resumption makes the abandoned activities of its instance visible.
func TestHiddenMessages_AnActivityBecomesVisibleOnAResumption(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := serving(t, testConfig(t))
		scheduleOne(t, h, "i")
		if err := mustActivity(t, h).Lock.Abandon(t.Context(), errLost); err != nil {
			t.Fatal(err)
		}
		if n := visibleMessages(t, h.workItems); n != 0 {
			t.Errorf("%d visible work items before the resumption", n)
		}
		control(t, h, "i", &history.ExecutionResumed{Header: history.NewHeader(time.Now())})
		time.Sleep(500 * time.Millisecond) // less than the delay of the activity
		if n := visibleMessages(t, h.workItems); n != 1 {
			t.Errorf("%d visible work items after the resumption, want 1", n)
		}
	})
}
