package handler

import (
	"cmp"
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A fakeHub is a task hub in memory without any work for workers. Instances change only if a test
// changes them.
type fakeHub struct {
	mu        sync.Mutex // guards the fields below
	instances map[string]*provider.InstanceState
	histories map[string][]history.Event
	sent      []provider.TaskMessage
	queries   []provider.Query
	outage    error // the error of every client call
	// outageOfInputs is the error of a read of an instance with its input.
	outageOfInputs error
	ran            int   // number of calls of Run that have returned
	refusal        error // the error of Run
	// unreadable is part of every page of instances.
	unreadable []provider.UnreadableInstance
}

var _ provider.Provider = (*fakeHub)(nil)

func newFakeHub() *fakeHub {
	return &fakeHub{instances: map[string]*provider.InstanceState{}, histories: map[string][]history.Event{}}
}

var fakeTime = time.Date(2026, 1, 5, 10, 20, 30, 123456700, time.UTC)

func (h *fakeHub) StartInstance(_ context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outage != nil {
		return h.outage
	}
	event := start.Event.(*history.ExecutionStarted)
	id := start.Target.InstanceID
	if old := h.instances[id]; old != nil && slices.Contains(refuse, old.Status) {
		return &provider.InstanceExistsError{InstanceID: id, Status: old.Status}
	}
	h.instances[id] = &provider.InstanceState{
		Instance: event.Instance, Name: event.Name, Version: event.Version, Tags: event.Tags, Status: history.Pending, Input: event.Input, CreatedAt: fakeTime, LastUpdatedAt: fakeTime, FirstCreatedAt: event.Timestamp,
	}
	return nil
}

func (h *fakeHub) Send(_ context.Context, msg provider.TaskMessage) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, msg)
	return h.outage
}

func (h *fakeHub) Instance(_ context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outage != nil {
		return nil, h.outage
	}
	if fetch.Input && h.outageOfInputs != nil {
		return nil, h.outageOfInputs
	}
	state := h.instances[id]
	if state == nil {
		return nil, provider.ErrInstanceNotFound
	}
	return fetched(state, fetch), nil
}

func fetched(state *provider.InstanceState, fetch provider.Fetch) *provider.InstanceState {
	copied := *state
	if !fetch.Input {
		copied.Input = nil
	}
	if !fetch.Output {
		copied.Output = nil
	}
	return &copied
}

// Instances returns pages ordered by ID. A continuation is the first ID of the next page.
func (h *fakeHub) Instances(_ context.Context, q provider.Query) (*provider.Page, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queries = append(h.queries, q)
	if h.outage != nil {
		return nil, h.outage
	}
	first := ""
	if q.Continuation != "" {
		places, err := provider.DecodeContinuation(q.Continuation, 1)
		if err != nil {
			return nil, err
		}
		first = places[0]
	}
	page, room := &provider.Page{Unreadable: h.unreadable}, q.PageBudget()
	for _, state := range slices.SortedFunc(mapValues(h.instances), func(a, b *provider.InstanceState) int {
		return cmp.Compare(a.Instance.InstanceID, b.Instance.InstanceID)
	}) {
		id := state.Instance.InstanceID
		switch {
		case id < first, !q.Matches(state):
		case room.Remaining() == 0, q.PageSize > 0 && len(page.Instances) == q.PageSize:
			page.Continuation = provider.EncodeContinuation(id)
			return page, nil
		default:
			page.Instances = append(page.Instances, fetched(state, q.Fetch))
			room.Subtract(page.Instances[len(page.Instances)-1])
		}
	}
	return page, nil
}

func mapValues[K comparable, V any](m map[K]V) func(yield func(V) bool) {
	return func(yield func(V) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

func (h *fakeHub) History(_ context.Context, id string) ([]history.Event, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.histories[id], h.outage
}

func (h *fakeHub) Run(ctx context.Context) error {
	h.mu.Lock()
	refusal := h.refusal
	h.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	<-ctx.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran++
	return nil
}

func (h *fakeHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h *fakeHub) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// fail makes every client call fail with err. nil ends the outage.
func (h *fakeHub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outage = err
}

// put adds an instance.
func (h *fakeHub) put(id string, status history.RuntimeStatus, change func(*provider.InstanceState)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := &provider.InstanceState{
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "e"}, Name: "Greet", Status: status,
		CreatedAt: fakeTime, LastUpdatedAt: fakeTime.Add(11 * time.Second),
	}
	if change != nil {
		change(state)
	}
	h.instances[id] = state
}

// messages returns the messages sent to instances.
func (h *fakeHub) messages() []provider.TaskMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sent)
}

// fakeConfig returns a configuration for hub.
func fakeConfig(t testing.TB, hub provider.Provider) Config {
	t.Helper()
	cfg := Config{RoutePrefix: "api", Provider: hub, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	cfg.Storage.TaskHub = "MyHub"
	return cfg
}

// readyServer returns a server that is ready.
func readyServer(t testing.TB, app App, cfg Config) *Server {
	t.Helper()
	s := New(app, cfg)
	if s.cfg.Problem != nil {
		t.Fatal(s.cfg.Problem)
	}
	s.state.SetReady()
	t.Cleanup(func() { wantNothingInUse(t, s) })
	return s
}

// wantNothingInUse fails the test if a server without requests has not released all memory for bodies.
func wantNothingInUse(t testing.TB, s *Server) {
	t.Helper()
	if left := s.front.Bodies.Available.Load(); left != s.cfg.MaxRequestBodies {
		t.Errorf("%d bytes of body memory are free after all requests, want %d", left, s.cfg.MaxRequestBodies)
	}
}

// call sends one request to s. If body is not empty, its content type is JSON.
func call(s *Server, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	r.RequestURI = target
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}
