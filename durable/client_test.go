package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func double(_ *durable.Context, n int) (int, error) { return 2 * n, nil }

// watchedHub records the messages and the fetches of a client.
type watchedHub struct {
	*memhub.Hub
	started []*history.ExecutionStarted
	refused [][]history.RuntimeStatus
	sent    []provider.TaskMessage

	mu      sync.Mutex // guards the fields below
	fetched []provider.Fetch
}

// fetches returns and clears the recorded fetches.
func (h *watchedHub) fetches() []provider.Fetch {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.fetched
	h.fetched = nil
	return f
}

func (h *watchedHub) StartInstance(ctx context.Context, m provider.TaskMessage, refuse []history.RuntimeStatus) error {
	h.started = append(h.started, m.Event.(*history.ExecutionStarted))
	h.refused = append(h.refused, refuse)
	return h.Hub.StartInstance(ctx, m, refuse)
}

func (h *watchedHub) Send(ctx context.Context, m provider.TaskMessage) error {
	h.sent = append(h.sent, m)
	return h.Hub.Send(ctx, m)
}

func (h *watchedHub) Instance(ctx context.Context, id string, f provider.Fetch) (*provider.InstanceState, error) {
	h.mu.Lock()
	h.fetched = append(h.fetched, f)
	h.mu.Unlock()
	return h.Hub.Instance(ctx, id, f)
}

func newClient(opts ...durable.ClientOption) (*durable.Client, *watchedHub) {
	h := &watchedHub{Hub: memhub.New()}
	r := durable.NewRegistry(durable.Orchestrator("Double", double))
	return durable.NewClient(h, r, opts...), h
}

var guidN = regexp.MustCompile(`^[0-9a-f]{32}$`)

func TestStart_SendsTheSameEventAsDotNet(t *testing.T) {
	c, h := newClient()
	i, err := durable.Start(t.Context(), c, double, 21)
	if err != nil {
		t.Fatal(err)
	}
	e := h.started[0]
	if !guidN.MatchString(string(i.ID)) || !guidN.MatchString(e.Instance.ExecutionID) || string(i.ID) == e.Instance.ExecutionID {
		t.Errorf("IDs are %q and %q, want two GUIDs in format N", i.ID, e.Instance.ExecutionID)
	}
	if age := time.Since(e.Timestamp); age < 0 || age > time.Minute || e.Timestamp.Nanosecond()%100 != 0 {
		t.Errorf("timestamp is %v, want now in units of 100 ns", e.Timestamp)
	}
	want := &history.ExecutionStarted{
		Header:   history.Header{EventID: -1, Timestamp: e.Timestamp},
		Instance: history.OrchestrationInstance{InstanceID: string(i.ID), ExecutionID: e.Instance.ExecutionID},
		Name:     "Double", Version: "", Input: new("21"), // no parent, no tags; the provider counts generations
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("start (-want +got):\n%s", diff)
	}
}

func TestStart_NeedsARegisteredOrchestrator(t *testing.T) {
	c, h := newClient()
	stranger := func(*durable.Context, int) (int, error) { return 0, nil }
	if _, err := durable.Start(t.Context(), c, stranger, 1); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Errorf("error is %v, want one that contains \"not registered\"", err)
	}
	nameless := durable.NewClient(h, nil)
	if _, err := durable.Start(t.Context(), nameless, double, 1); err == nil || !strings.Contains(err.Error(), "registry") {
		t.Errorf("error is %v, want one that contains \"registry\"", err)
	}
	if len(h.started) != 0 {
		t.Errorf("%d instances were started, want 0", len(h.started))
	}
}

func TestStartByName_PassesTheInputUnchanged(t *testing.T) {
	c, h := newClient()
	for _, input := range []json.RawMessage{nil, {}, json.RawMessage("null"), json.RawMessage(`{"a" : 1}`)} {
		if _, err := c.StartByName(t.Context(), "Elsewhere", input); err != nil {
			t.Fatal(err)
		}
	}
	want := []*string{nil, nil, new("null"), new(`{"a" : 1}`)}
	var got []*string
	for _, e := range h.started {
		got = append(got, e.Input)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
	if _, err := c.StartByName(t.Context(), "", nil); err == nil {
		t.Error("StartByName accepted an empty name")
	}
}

// The extension's OverridableStates.cs refuses the same statuses.
func TestStart_RejectsTheIDOfALiveInstance(t *testing.T) {
	id := durable.InstanceID("only one")
	c, h := newClient()
	if _, err := durable.Start(t.Context(), c, double, 1, id); err != nil {
		t.Fatal(err)
	}
	_, err := durable.Start(t.Context(), c, double, 2, id)
	if !errors.Is(err, durable.ErrInstanceExists) {
		t.Errorf("err = %v, want ErrInstanceExists", err)
	}
	exists, ok := errors.AsType[*provider.InstanceExistsError](err)
	if !ok || exists.Status != history.Pending || exists.InstanceID != "only one" {
		t.Errorf("error is %v, want an InstanceExistsError with status Pending", err)
	}
	want := []history.RuntimeStatus{history.Running, history.ContinuedAsNew, history.Pending, history.Suspended}
	if diff := cmp.Diff(want, h.refused[0]); diff != "" {
		t.Errorf("refused statuses (-want +got):\n%s", diff)
	}

	any, h := newClient(durable.AnyState)
	for range 2 {
		if _, err := durable.Start(t.Context(), any, double, 1, id); err != nil {
			t.Error(err)
		}
	}
	if len(h.refused[0]) != 0 {
		t.Errorf("refused statuses are %v, want none", h.refused[0])
	}
}

func TestInstanceIDs_FollowTheRulesOfTheExtension(t *testing.T) {
	for id, want := range map[durable.InstanceID]string{
		"a":                              "",
		"abc.DEF-1_2 3:4@5%'+^~äö\u20ac": "",
		durable.InstanceID(strings.Repeat("x", 256)):          "",
		durable.InstanceID(strings.Repeat("x", 257)):          "must not exceed 256",
		durable.InstanceID(strings.Repeat("\U0001F600", 128)): "",
		durable.InstanceID(strings.Repeat("\U0001F600", 129)): "must not exceed 256",
		"@counter@k": "must not start with @",
		"":           "must not be empty",
		"a/b":        `contains '/'`,
		`a\b`:        `contains '\\'`,
		"a#b":        `contains '#'`,
		"a?b":        `contains '?'`,
		"a\tb":       `contains '\t'`,
		"a\u007fb":   `contains '\x7f'`,
		"a\u0085b":   `contains '\u0085'`,
		"a\xffb":     "UTF-8",
	} {
		err := durable.ValidateInstanceID(id)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: error is %v, want none", id, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error is %v, want %s", id, err, want)
		}
		if _, ok := errors.AsType[*durable.InstanceIDError](err); err != nil && !ok {
			t.Errorf("%q: error is a %T", id, err)
		}
	}
	c, h := newClient()
	if _, err := c.StartByName(t.Context(), "Double", nil, durable.InstanceID("@x@y")); err == nil || len(h.started) != 0 {
		t.Errorf("StartByName with the ID of an entity: %v; want an error", err)
	}
}

func TestMessages_AreSentOnlyToInstancesThatHaveNotEnded(t *testing.T) {
	messages := map[string]func(context.Context, *durable.Client, durable.InstanceID) error{
		"raise": func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
			return c.RaiseEvent(ctx, id, "go", json.RawMessage("1"))
		},
		"terminate": func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
			return c.Terminate(ctx, id, "enough")
		},
	}
	for name, send := range messages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, h := newClient()
				if err := send(t.Context(), c, "nobody"); !errors.Is(err, durable.ErrInstanceNotFound) {
					t.Errorf("error is %v, want ErrInstanceNotFound", err)
				}
				i, err := durable.Start(t.Context(), c, double, 1)
				if err != nil {
					t.Fatal(err)
				}
				if err := send(t.Context(), c, i.ID); err != nil {
					t.Errorf("error is %v for a Pending instance", err)
				}
				if len(h.sent) != 1 || h.sent[0].Target != (history.OrchestrationInstance{InstanceID: string(i.ID)}) {
					t.Errorf("sent %+v, want one message for any execution", h.sent)
				}
				stop := run(t, h, durable.NewRegistry(durable.Orchestrator("Double", double)), durable.Config{})
				defer stop()
				_, err = i.Wait(t.Context())
				if failed, ok := errors.AsType[*durable.OrchestrationFailedError](err); err != nil && !ok {
					t.Fatal(failed)
				}
				err = send(t.Context(), c, i.ID)
				if !errors.Is(err, durable.ErrInstanceEnded) || errors.Is(err, durable.ErrInstanceNotFound) {
					t.Errorf("error is %v, want ErrInstanceEnded", err)
				}
				if len(h.sent) != 1 {
					t.Errorf("%d messages were sent, want 1", len(h.sent))
				}
			})
		})
	}
}

func TestMessages_EqualThoseOfDotNetClients(t *testing.T) {
	c, h := newClient()
	i, err := durable.Start(t.Context(), c, double, 1)
	if err != nil {
		t.Fatal(err)
	}
	h.fetches()
	if err := c.RaiseEvent(t.Context(), i.ID, "go", json.RawMessage(`{"a": 1}`)); err != nil {
		t.Error(err)
	}
	if err := c.RaiseEvent(t.Context(), i.ID, "go", nil); err != nil {
		t.Error(err)
	}
	if err := c.Terminate(t.Context(), i.ID, "enough"); err != nil {
		t.Error(err)
	}
	if err := c.RaiseEvent(t.Context(), i.ID, "", nil); err == nil {
		t.Error("RaiseEvent accepted an empty name")
	}
	head := func(n int) history.Header {
		return history.Header{EventID: -1, Timestamp: h.sent[n].Event.Head().Timestamp}
	}
	want := []history.Event{
		&history.EventRaised{Header: head(0), Name: "go", Input: new(`{"a": 1}`)},
		&history.EventRaised{Header: head(1), Name: "go"},
		&history.ExecutionTerminated{Header: head(2), Reason: new("enough")},
	}
	for n, m := range h.sent {
		if diff := cmp.Diff(want[n], m.Event); diff != "" {
			t.Errorf("message %d (-want +got):\n%s", n, diff)
		}
	}
	if diff := cmp.Diff([]provider.Fetch{{}, {}, {}}, h.fetches()); diff != "" {
		t.Errorf("fetched fields (-want +got):\n%s", diff)
	}
}

func TestClient_RejectsInvalidJSON(t *testing.T) {
	t.Parallel()
	c := durable.NewClient(memhub.New(), nil)
	for _, raw := range []string{"yes", "{", "1 2", " ", "\x00"} {
		if _, err := c.StartByName(t.Context(), "X", json.RawMessage(raw), durable.InstanceID("a")); err == nil || !strings.Contains(err.Error(), "is not JSON") {
			t.Errorf("start with input %q: error is %v, want not JSON", raw, err)
		}
		if err := c.RaiseEvent(t.Context(), "a", "e", json.RawMessage(raw)); err == nil || !strings.Contains(err.Error(), "is not JSON") {
			t.Errorf("event with payload %q: error is %v, want not JSON", raw, err)
		}
	}
}

func TestWait_FetchesTheOutputOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newClient()
		i, err := durable.Start(t.Context(), c, double, 21)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan int)
		go func() {
			n, err := i.Wait(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- n
		}()
		time.Sleep(10 * time.Minute)
		polls := len(h.fetches())
		if polls < 300 || polls > 320 {
			t.Errorf("polled %d times in ten minutes, want every 2 s", polls)
		}
		stop := run(t, h, durable.NewRegistry(durable.Orchestrator("Double", double)), durable.Config{})
		defer stop()
		if n := <-got; n != 42 {
			t.Errorf("output is %d, want 42", n)
		}
		outputs := 0
		for _, f := range h.fetches() {
			if f.Input {
				t.Error("the input was fetched")
			}
			if f.Output {
				outputs++
			}
		}
		if outputs != 1 {
			t.Errorf("the output was fetched %d times, want 1", outputs)
		}
	})
}

func TestWait_ReturnsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient()
		i, err := durable.Start(t.Context(), c, double, 21)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := i.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want context.DeadlineExceeded", err)
		}
		if _, err := durable.InstanceOf[int](c, "nobody").Wait(t.Context()); !errors.Is(err, durable.ErrInstanceNotFound) {
			t.Errorf("error is %v, want ErrInstanceNotFound", err)
		}
	})
}

func TestClient_ReadsInstancesFromTheHub(t *testing.T) {
	c, _ := newClient()
	for _, id := range []durable.InstanceID{"a", "b", "c"} {
		if _, err := durable.Start(t.Context(), c, double, 1, id); err != nil {
			t.Fatal(err)
		}
	}
	page, err := c.ListInstances(t.Context(), durable.Query{IDPrefix: "b"})
	if err != nil || len(page.Instances) != 1 || page.Instances[0].Instance.InstanceID != "b" {
		t.Errorf("list is %+v, %v; want instance b", page, err)
	}
	if h, err := c.History(t.Context(), "b"); err != nil || len(h) != 0 {
		t.Errorf("history is %v, %v; want none", h, err)
	}
	if s, err := c.Status(t.Context(), "b", durable.Fetch{Input: true}); err != nil || s.Name != "Double" || *s.Input != "1" {
		t.Errorf("status is %+v, %v", s, err)
	}
	if _, err := c.Status(t.Context(), "d", durable.Fetch{}); !errors.Is(err, durable.ErrInstanceNotFound) {
		t.Errorf("error is %v, want ErrInstanceNotFound", err)
	}
}

type unableToStart struct{ *memhub.Hub }

func (unableToStart) StartInstance(context.Context, provider.TaskMessage, []history.RuntimeStatus) error {
	return errors.ErrUnsupported
}

func TestStart_ErrorNamesTheInstanceAndTheFunction(t *testing.T) {
	t.Parallel()
	c := durable.NewClient(unableToStart{memhub.New()}, nil)
	_, err := c.StartByName(t.Context(), "Double", nil, durable.InstanceID("a"))
	if !errors.Is(err, errors.ErrUnsupported) || err.Error() != "start instance a of Double: unsupported operation" {
		t.Errorf("error is %v", err)
	}
}
