package azurestorage

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestInstanceRow_IsNotWrittenWhenACheckpointSaysNothingNew(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := func(change func(s *provider.InstanceState)) *wire.InstanceRow {
		r := &wire.InstanceRow{State: provider.InstanceState{
			Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "x"}, Status: history.Running, LastUpdatedAt: now,
		}}
		if change != nil {
			change(&r.State)
		}
		return r
	}
	head := history.NewHeader(now.Add(time.Second))
	checkpoint := func(events ...history.Event) *provider.Checkpoint {
		events = append(events, &history.OrchestratorCompleted{Header: head})
		return &provider.Checkpoint{Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "x"}, NewEvents: events}
	}
	withStatus := checkpoint()
	withStatus.CustomStatus = new(`"half"`)
	next := checkpoint()
	next.Instance.ExecutionID = "y"
	plain := row(nil)
	for name, tt := range map[string]struct {
		row       *wire.InstanceRow
		cp        *provider.Checkpoint
		tolerance time.Duration
		want      bool
	}{
		"a result was taken":                {plain, checkpoint(&history.TaskCompleted{Header: head}), 3 * time.Second, true},
		"the last update is old":            {plain, checkpoint(), time.Second, false},
		".NET writes the row every time":    {plain, checkpoint(), -1, false},
		"there is no row":                   {nil, checkpoint(), 3 * time.Second, false},
		"the row missed the start":          {row(func(s *provider.InstanceState) { s.Status = history.Pending }), checkpoint(), 3 * time.Second, false},
		"it is another execution":           {plain, next, 3 * time.Second, false},
		"the custom status is new":          {plain, withStatus, 3 * time.Second, false},
		"the custom status is gone":         {row(func(s *provider.InstanceState) { s.CustomStatus = new(`1`) }), checkpoint(), 3 * time.Second, false},
		"the custom status is the same":     {row(func(s *provider.InstanceState) { s.CustomStatus = new(`"half"`) }), withStatus, 3 * time.Second, true},
		"the execution begins":              {plain, checkpoint(&history.ExecutionStarted{Header: head}), 3 * time.Second, false},
		"the execution ends":                {plain, checkpoint(&history.ExecutionCompleted{Header: head}), 3 * time.Second, false},
		"the instance is suspended":         {plain, checkpoint(&history.ExecutionSuspended{Header: head}), 3 * time.Second, false},
		"the instance is resumed":           {plain, checkpoint(&history.ExecutionResumed{Header: head}), 3 * time.Second, false},
		"the instance is terminated":        {plain, checkpoint(&history.ExecutionTerminated{Header: head}), 3 * time.Second, false},
		"a suspended instance gets results": {row(func(s *provider.InstanceState) { s.Status = history.Suspended }), checkpoint(&history.TaskCompleted{Header: head}), 3 * time.Second, true},
	} {
		if got := saysNothingNew(tt.row, tt.cp, tt.tolerance); got != tt.want {
			t.Errorf("%s: it says nothing new: %v, want %v", name, got, tt.want)
		}
	}
}

// With a negative tolerance every checkpoint is told to the row.
func TestInstanceRow_IsWrittenEveryTimeIfThatIsAskedFor(t *testing.T) {
	t.Parallel()
	for tolerance, want := range map[time.Duration]int{-1: 3, time.Hour: 2} {
		counter := azuritetest.NewCounter(azuritetest.Start(t), nil)
		cfg := testConfig(t)
		cfg.Transport, cfg.LastUpdatedTolerance = counter, tolerance
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "rows", "e1", `1`)
		runHello(t, h, "Tokyo", "Seattle")
		if n := counter.Total(func(c azuritetest.Call) bool { return c.Name == "MergeEntity" }); n != want {
			t.Errorf("tolerance %v: the row was written %d times by 3 checkpoints, want %d", tolerance, n, want)
		}
	}
}

// If the worker dies after the first checkpoint's history and before its row,
// the next checkpoint tells the row what it has missed.
func TestInstanceRow_IsToldWhatItMissed(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]bool{"the row is pending": false, "a child has no row": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cut atomic.Bool
			counter := azuritetest.NewCounter(azuritetest.Start(t), nil)
			counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
				if cut.Load() && (call.Name == "MergeEntity" || call.Name == "InsertEntity") {
					return azuritetest.Refusal(req, http.StatusForbidden, "AuthorizationFailure"), nil
				}
				return next()
			}
			cfg := testConfig(t)
			cfg.Transport = counter
			h := openHub(t, cfg)
			if err := h.ensureCreated(t.Context()); err != nil {
				t.Fatal(err)
			}
			runHub(t, h)
			if missing {
				start := startMessage("i", "e1", `"in"`)
				start.Event.(*history.ExecutionStarted).Parent = &history.ParentInstance{Name: "P", Instance: history.OrchestrationInstance{InstanceID: "p", ExecutionID: "p1"}}
				if _, err := h.send(t.Context(), h.controlQueues[0], &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{InstanceID: "p"}}, true); err != nil {
					t.Fatal(err)
				}
			} else {
				mustStart(t, h, "i", "e1", `"in"`)
			}
			item := mustNext(t, h)
			ev, msg := schedule(item, 0, `["a"]`)
			cut.Store(true)
			err := item.Session.Commit(t.Context(), &provider.Checkpoint{
				Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg},
			})
			if err := errors.Join(err, item.Session.Release(t.Context())); err != nil {
				t.Fatal(err)
			}
			if state, err := h.Instance(t.Context(), "i", provider.Fetch{}); err == nil && state.Status != history.Pending || missing && err == nil {
				t.Fatalf("the row is %+v, %v: it was refused", state, err)
			}
			cut.Store(false)
			completeActivity(t, h, `"a"`)
			commitActivity(t, mustNext(t, h), 1, `["b"]`)
			state, err := h.Instance(t.Context(), "i", provider.Fetch{Input: true})
			if err != nil {
				t.Fatal(err)
			}
			if state.Status != history.Running || store.Value(state.Input) != `"in"` || state.Name != "HelloSeq" {
				t.Errorf("the row is %v %q with input %s, want Running, the name and the input", state.Status, state.Name, store.Value(state.Input))
			}
		})
	}
}

// The row is refused a custom status for a while, and nothing comes after that. What
// was taken is kept, and when it comes again the row is told.
func TestInstanceRow_IsToldTheCustomStatusThatItMissed(t *testing.T) {
	t.Parallel()
	h, item, stuck := mustHaveAnEvent(t, "MergeEntity", refuse)
	stuck.Store(true)
	mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, CustomStatus: new(`"busy"`), NewEvents: episode(item.Messages)})
	eventually(t, "the event is handed back", 20*time.Second, func() bool { return logged(h, "AbandoningMessage", "write row") })
	stuck.Store(false)
	eventually(t, "the row has the custom status", 60*time.Second, func() bool {
		state, err := h.Instance(t.Context(), "loop", provider.Fetch{})
		return err == nil && store.Value(state.CustomStatus) == `"busy"`
	})
	eventually(t, "what was taken is deleted", 60*time.Second, func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
}

// An instance is suspended, its row cannot be told, and no checkpoint follows:
// nobody resumes what does not seem to be suspended. What was taken is kept until
// the row says so, comes again and puts it right.
func TestInstanceRow_IsPutRightByWhatWasTaken(t *testing.T) {
	t.Parallel()
	var cut atomic.Bool
	counter := azuritetest.NewCounter(azuritetest.Start(t), nil)
	counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if cut.Load() && call.Name == "MergeEntity" {
			return azuritetest.Refusal(req, http.StatusForbidden, "AuthorizationFailure"), nil
		}
		return next()
	}
	cfg := testConfig(t)
	cfg.Transport = counter
	h := openHub(t, cfg)
	runHub(t, h)
	mustStart(t, h, "i", "e1", `"in"`)
	item := mustNext(t, h)
	cut.Store(true)
	err := item.Session.Commit(t.Context(), &provider.Checkpoint{
		Instance: item.Instance, NewEvents: episode(item.Messages, &history.ExecutionSuspended{Header: header(-1)}),
	})
	if err := errors.Join(err, item.Session.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	if state, err := h.Instance(t.Context(), "i", provider.Fetch{}); err != nil || state.Status != history.Pending {
		t.Fatalf("the row is %+v, %v: it was refused", state, err)
	}
	cut.Store(false)
	eventually(t, "the row says that the instance is suspended", 60*time.Second, func() bool {
		state, err := h.Instance(t.Context(), "i", provider.Fetch{})
		return err == nil && state.Status == history.Suspended
	})
	eventually(t, "what was taken is deleted", 60*time.Second, func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
}
