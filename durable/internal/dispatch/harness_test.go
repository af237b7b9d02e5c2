package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

type activity = func(ctx context.Context, input *string) (*string, error)

// functions implements dispatch.Functions.
type functions struct {
	orchestrators map[string]replay.Code
	activities    map[string]activity
	entities      map[string]dispatch.EntityCode
}

func (f functions) Orchestrator(name, version string) (replay.Code, bool) {
	if code, ok := f.orchestrators[name+" "+version]; ok {
		return code, true
	}
	code, ok := f.orchestrators[name]
	return code, ok
}

func (f functions) Activity(name string) (func(context.Context, *string) (*string, error), bool) {
	fn, ok := f.activities[name]
	return fn, ok
}

// A bench is a hub with workers inside a synctest bubble.
type bench struct {
	testing.TB
	*memhub.Hub
	log *logBook
	ids atomic.Int64
}

func newBench(tb testing.TB) *bench { return &bench{TB: tb, Hub: memhub.New(), log: new(logBook)} }

// work runs a worker with fns until stop is called. Stop returns the result of Run.
func (b *bench) work(fns functions, change ...func(*dispatch.Config)) (stop func() error) {
	_, stop = b.workOn(b.Hub.Worker, fns, change...)
	return stop
}

// dispatcher runs a worker with fns until the test ends, and returns its dispatcher.
func (b *bench) dispatcher(fns functions, change ...func(*dispatch.Config)) *dispatch.Dispatcher {
	b.Helper()
	d, _ := b.workOn(b.Hub.Worker, fns, change...)
	return d
}

func (b *bench) workOn(w provider.Worker, fns functions, change ...func(*dispatch.Config)) (d *dispatch.Dispatcher, stop func() error) {
	b.Helper()
	cfg := dispatch.Config{
		MaxConcurrentActivities:    10,
		MaxConcurrentOrchestrators: 10,
		ExtendedSessionIdle:        30 * time.Second,
		ShutdownTimeout:            5 * time.Second,
		EpisodeWarnAfter:           10 * time.Second,
		StallTimeout:               30 * time.Second,
		Logger:                     slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:                        time.Now,
		NewID:                      func() string { return fmt.Sprintf("%032x", b.ids.Add(1)) },
	}
	for _, c := range change {
		c(&cfg)
	}
	var used inuse.Watch
	ctx, cancel := context.WithCancel(inuse.With(context.Background(), &used))
	ended := make(chan error, 1)
	d = dispatch.New(w, fns, cfg)
	go func() { ended <- d.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			if err = <-ended; err != nil {
				return // user code may still run
			}
			if left := used.All(); len(left) > 0 {
				b.Errorf("the worker has stopped and still uses %q", left)
			}
		})
		return err
	}
	b.Cleanup(func() { _ = stop() })
	return d, stop
}

// start starts an instance as a client does.
func (b *bench) start(id, name string, input any) {
	b.Helper()
	b.startEvent(&history.ExecutionStarted{
		Header:   history.NewHeader(time.Now()),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "execution of " + id},
		Name:     name,
		Input:    encode(input),
	})
}

func (b *bench) startEvent(e *history.ExecutionStarted) {
	b.Helper()
	if err := b.StartInstance(b.Context(), provider.TaskMessage{Event: e, Target: e.Instance}, nil); err != nil {
		b.Fatal(err)
	}
}

// send sends e to an instance without an execution ID.
func (b *bench) send(id string, e history.Event) {
	b.Helper()
	*e.Head() = history.NewHeader(time.Now())
	b.sendTo(history.OrchestrationInstance{InstanceID: id}, e)
}

func (b *bench) sendTo(target history.OrchestrationInstance, e history.Event) {
	b.Helper()
	if err := b.Send(b.Context(), provider.TaskMessage{Event: e, Target: target}); err != nil {
		b.Fatal(err)
	}
}

// state returns the state of an instance.
func (b *bench) state(id string) *provider.InstanceState {
	b.Helper()
	s, err := b.Instance(b.Context(), id, provider.Fetch{Input: true, Output: true})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// end waits until an instance has ended, for at most a day of the bubble's time, and returns
// its state.
func (b *bench) end(id string) *provider.InstanceState {
	b.Helper()
	for range 24 * 3600 {
		s, err := b.Instance(b.Context(), id, provider.Fetch{Output: true})
		if err == nil && s.Status.IsTerminal() {
			return s
		}
		time.Sleep(time.Second) // real time: all callers run in a bubble
	}
	s, err := b.Instance(b.Context(), id, provider.Fetch{})
	b.Fatalf("instance %s does not end: %+v, %v\nlog:\n%s", id, s, err, b.log)
	return nil
}

// wantOutput fails the test unless the instance ends with the given status and output.
func (b *bench) wantOutput(id string, status history.RuntimeStatus, output string) {
	b.Helper()
	s := b.end(id)
	got := "<nil>"
	if s.Output != nil {
		got = *s.Output
	}
	if s.Status != status || got != output {
		b.Errorf("instance %s is %v with output %s, want %v with %s\nlog:\n%s", id, s.Status, got, status, output, b.log)
	}
}

// events returns the history of an instance.
func (b *bench) events(id string) []history.Event {
	b.Helper()
	h, err := b.History(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// types returns the names of the events in an instance's history.
func (b *bench) types(id string) string {
	b.Helper()
	var names []string
	for _, e := range b.events(id) {
		names = append(names, e.Type().String())
	}
	return strings.Join(names, " ")
}

// bubble runs f in a synctest bubble.
func bubble(t *testing.T, f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newBench(t)) })
}

// A logBook stores log entries.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBook) count(text string) int { return strings.Count(l.String(), text) }

func encode(v any) *string {
	if v == nil {
		return nil
	}
	j, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return new(string(j))
}

func decode[T any](p *string) (v T) {
	if p != nil {
		if err := json.Unmarshal([]byte(*p), &v); err != nil {
			panic(err)
		}
	}
	return v
}

// Building blocks of orchestrators in these tests.

func begin(x *replay.Execution, name string, input any) *replay.Future {
	f := new(replay.Future)
	x.ScheduleTask(f, name, encode(input))
	return f
}

func result(f *replay.Future) (*string, error) {
	f.Await()
	switch e := f.Event().(type) {
	case *history.TaskCompleted:
		return e.Result, nil
	case *history.TaskFailed:
		return nil, errors.New(*e.Reason)
	case *history.SubOrchestrationInstanceCompleted:
		return e.Result, nil
	case *history.SubOrchestrationInstanceFailed:
		return nil, errors.New(*e.Reason)
	case *history.EventRaised:
		return e.Input, nil
	}
	return nil, nil
}

func callActivity(x *replay.Execution, name string, input any) (*string, error) {
	return result(begin(x, name, input))
}

func sleepFor(x *replay.Execution, d time.Duration) {
	f := new(replay.Future)
	x.CreateTimer(f, x.Now().Add(d))
	f.Await()
}

func waitEvent(x *replay.Execution, name string) *history.EventRaised {
	f := new(replay.Future)
	x.WaitEvent(f, name)
	f.Await()
	return f.Event().(*history.EventRaised)
}

func sayHello(_ context.Context, input *string) (*string, error) {
	return encode("Hello " + decode[string](input) + "!"), nil
}

func helloSequence(x *replay.Execution, _ *string) (*string, error) {
	var all []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		r, err := callActivity(x, "Hello", city)
		if err != nil {
			return nil, err
		}
		all = append(all, decode[string](r))
	}
	return encode(all), nil
}

var helloFunctions = functions{
	orchestrators: map[string]replay.Code{"HelloSeq": helloSequence},
	activities:    map[string]activity{"Hello": sayHello},
}

func extendedSessions(c *dispatch.Config) { c.ExtendedSessions = true }

// everything selects all instances.
var everything = provider.Query{Fetch: provider.Fetch{Input: true, Output: true}}

var discard = slog.New(slog.DiscardHandler)
