package sim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// cut is a kind of interruption of a client's operation at one of its steps. A step is a request to the
// account, or a call of the provider if the hub is a local file.
type cut int

const (
	cutBefore cut = iota // the caller gives up, and the step has no effect
	cutAfter             // the caller gives up, and the step has its effect
	killAfter            // the caller's process dies after the step; another caller repeats the operation
	cuts
)

func (c cut) String() string {
	return [...]string{"the caller gives up before", "the caller gives up during", "the caller dies after"}[c]
}

// scissors interrupts the caller at the n-th step after arm.
type scissors struct {
	mu     sync.Mutex // guards the fields below
	armed  bool
	steps  int
	at     int
	cut    cut
	cancel context.CancelFunc
}

func (s *scissors) arm(cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.cancel = true, cancel
}

// disarm reports whether the operation reached the step of the interruption.
func (s *scissors) disarm() (met bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	return s.steps >= s.at
}

// step counts a step. It returns true at the step of the interruption.
func (s *scissors) step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.armed {
		return false
	}
	if s.steps++; s.steps != s.at {
		return false
	}
	if s.cut == killAfter {
		time.AfterFunc(time.Second, s.cancel) // ends the goroutines of the dead process
	} else {
		s.cancel()
	}
	return true
}

// cutCaller is the name of the client that is interrupted.
const cutCaller = "cut"

// decide interrupts the caller at a request.
func (s *scissors) decide(r azsim.Request) azsim.Fault {
	if r.Worker != "client "+cutCaller || !s.step() {
		return azsim.None
	}
	return [...]azsim.Fault{azsim.FailBefore, azsim.None, azsim.KillAfter}[s.cut]
}

// stepClient interrupts the caller at a call.
type stepClient struct {
	localClient
	scissors *scissors
}

func stepOf[T any](ctx context.Context, s *scissors, call func() (T, error)) (got T, err error) {
	isCut := s.step()
	if isCut && s.cut == cutBefore {
		return got, ctx.Err()
	}
	if got, err = call(); isCut {
		var none T
		return none, errors.Join(err, context.Canceled)
	}
	return got, err
}

// errorOf adapts a call that returns only an error.
func errorOf(call func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, call() }
}

func (c stepClient) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	_, err := stepOf(ctx, c.scissors, errorOf(func() error { return c.localClient.StartInstance(ctx, start, refuse) }))
	return err
}

func (c stepClient) Send(ctx context.Context, m provider.TaskMessage) error {
	_, err := stepOf(ctx, c.scissors, errorOf(func() error { return c.localClient.Send(ctx, m) }))
	return err
}

func (c stepClient) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	return stepOf(ctx, c.scissors, func() (*provider.InstanceState, error) { return c.localClient.Instance(ctx, id, fetch) })
}

func (c stepClient) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	return stepOf(ctx, c.scissors, func() (*provider.Page, error) { return c.localClient.Instances(ctx, q) })
}

func (c stepClient) History(ctx context.Context, id string) ([]history.Event, error) {
	return stepOf(ctx, c.scissors, func() ([]history.Event, error) { return c.localClient.History(ctx, id) })
}

func (c stepClient) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	_, err := stepOf(ctx, c.scissors, errorOf(func() error { return c.localClient.Purge(ctx, id, seen) }))
	return err
}

func (c stepClient) Rewind(ctx context.Context, id, reason string) error {
	_, err := stepOf(ctx, c.scissors, errorOf(func() error { return c.localClient.Rewind(ctx, id, reason) }))
	return err
}

// cutApp contains the functions that the clients use.
type cutApp struct{ mended atomic.Bool }

func (a *cutApp) functions() *durable.Registry {
	return durable.NewRegistry(
		durable.Orchestrator("Parent", a.parent), durable.Orchestrator("Child", a.child), durable.Orchestrator("Wait", waitForever),
		durable.Activity("Work", a.work), durable.Entity("tally", durable.Op("Add", (*tally).Add)))
}

func (a *cutApp) parent(ctx *durable.Context, name string) (string, error) {
	child := a.child
	if name == "wait" {
		child = waitForever
	}
	return durable.CallSubOrchestrator(ctx, child, name, durable.InstanceID("family-child")).Await()
}

func (a *cutApp) child(ctx *durable.Context, name string) (string, error) {
	return durable.CallActivity(ctx, a.work, name).Await()
}

func (a *cutApp) work(_ context.Context, name string) (string, error) {
	if !a.mended.Load() {
		return "", errors.New("it is broken")
	}
	return name, nil
}

func waitForever(ctx *durable.Context, _ string) (string, error) {
	return durable.Event[string]("never").Wait(ctx).Await()
}

// cutHub is a hub with one worker.
type cutHub struct {
	t        *testing.T
	app      *cutApp
	ctx      context.Context
	client   *durable.Client // a client without interruptions
	platform sim.Platform
}

func (h *cutHub) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// start starts an instance and waits until all of ids have the status.
func (h *cutHub) start(name, input string, status history.RuntimeStatus, ids ...durable.InstanceID) {
	h.t.Helper()
	_, err := h.client.StartByName(h.ctx, name, []byte(fmt.Sprintf("%q", input)), ids[0])
	h.must(err)
	h.await(status, ids...)
}

// await waits until instances have a status.
func (h *cutHub) await(want history.RuntimeStatus, ids ...durable.InstanceID) {
	h.t.Helper()
	deadline := time.Now().Add(15 * time.Minute)
	for _, id := range ids {
		for {
			s, err := h.client.Status(h.ctx, id, durable.Fetch{})
			if err == nil && s.Status == want {
				break
			}
			if time.Now().After(deadline) {
				h.t.Fatalf("instance %s: %+v, %v; want it to become %v", id, s, err, want)
			}
			time.Sleep(time.Second)
		}
	}
}

// gone checks that the instances do not exist.
func (h *cutHub) gone(ids ...durable.InstanceID) {
	h.t.Helper()
	for _, id := range ids {
		if s, err := h.client.Status(h.ctx, id, durable.Fetch{}); !errors.Is(err, durable.ErrInstanceNotFound) {
			h.t.Errorf("instance %s: %+v, %v; want none", id, s, err)
		}
	}
}

// cutOperation is an operation of a client that may take several steps.
type cutOperation struct {
	name    string
	prepare func(*cutHub)
	do      func(context.Context, *durable.Client) error
	// isDone reports whether the error of the repeated operation means that the interrupted attempt has
	// succeeded. Nil means that every error is a failure.
	isDone func(error) bool
	check  func(*cutHub)
}

func isStateError(err error) bool { return errors.As(err, new(*durable.InstanceStateError)) }

func isIn(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

const (
	family      = durable.InstanceID("family")
	familyChild = durable.InstanceID("family-child")
	tallied     = durable.EntityKey[tally]("a")
)

func ended(h *cutHub) {
	h.app.mended.Store(true)
	h.start("Parent", "x", history.Completed, family, familyChild)
}

var cutOperations = []cutOperation{
	{
		name: "rewind",
		prepare: func(h *cutHub) {
			h.start("Parent", "x", history.Failed, family, familyChild)
			h.app.mended.Store(true)
		},
		do:     func(ctx context.Context, c *durable.Client) error { return c.Rewind(ctx, family, "mended") },
		isDone: isStateError, // the instance runs again
		check:  func(h *cutHub) { h.await(history.Completed, family, familyChild) },
	},
	{
		name:    "terminate with children",
		prepare: func(h *cutHub) { h.start("Parent", "wait", history.Running, family, familyChild) },
		do: func(ctx context.Context, c *durable.Client) error {
			return c.Terminate(ctx, family, "enough", durable.Recursive)
		},
		isDone: isIn(durable.ErrInstanceEnded),
		check:  func(h *cutHub) { h.await(history.Terminated, family, familyChild) },
	},
	{
		name:    "purge with children",
		prepare: ended,
		do: func(ctx context.Context, c *durable.Client) error {
			_, err := c.Purge(ctx, family, durable.Recursive)
			return err
		},
		isDone: isIn(durable.ErrInstanceNotFound),
		check:  func(h *cutHub) { h.gone(family, familyChild) },
	},
	{
		name:    "purge by a filter",
		prepare: ended,
		do: func(ctx context.Context, c *durable.Client) error {
			_, err := c.PurgeMany(ctx, durable.PurgeFilter{IDPrefix: "fam"})
			return err
		},
		check: func(h *cutHub) { h.gone(family, familyChild) },
	},
	{
		name:    "start",
		prepare: func(h *cutHub) { h.app.mended.Store(true) },
		do: func(ctx context.Context, c *durable.Client) error {
			_, err := c.StartByName(ctx, "Child", []byte(`"x"`), family)
			return err
		},
		isDone: isIn(durable.ErrInstanceExists),
		check:  func(h *cutHub) { h.await(history.Completed, family) },
	},
	{
		name:    "start in the place of an instance that has ended",
		prepare: func(h *cutHub) { h.start("Child", "x", history.Failed, family); h.app.mended.Store(true) },
		do: func(ctx context.Context, c *durable.Client) error {
			_, err := c.StartByName(ctx, "Child", []byte(`"x"`), family)
			return err
		},
		isDone: isIn(durable.ErrInstanceExists),
		check:  func(h *cutHub) { h.await(history.Completed, family) },
	},
	{
		name:    "restart",
		prepare: func(h *cutHub) { h.start("Child", "x", history.Failed, family); h.app.mended.Store(true) },
		do: func(ctx context.Context, c *durable.Client) error {
			_, err := c.Restart(ctx, family, family)
			return err
		},
		isDone: isIn(durable.ErrInstanceExists),
		check:  func(h *cutHub) { h.await(history.Completed, family) },
	},
	{
		name: "delete and clean an entity",
		prepare: func(h *cutHub) {
			h.must(durable.Signal(h.ctx, h.client, tallied, (*tally).Add, 1))
			for {
				if _, err := h.client.Entity(h.ctx, tallied); err == nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
		do: func(ctx context.Context, c *durable.Client) error {
			if err := c.DeleteEntity(ctx, tallied); err != nil {
				return err
			}
			time.Sleep(time.Minute)
			_, err := c.CleanEntities(ctx, durable.EntityCleaning{ReorderWindow: time.Nanosecond})
			return err
		},
		check: func(h *cutHub) { h.gone("@tally@a") },
	},
}

// A client's operation that is interrupted at any of its steps succeeds when it is repeated. The caller gives
// up or dies.
func TestCut_OperationsSucceedWhenRepeated(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	for _, hub := range allHubs {
		for _, op := range cutOperations {
			t.Run(op.name+"/"+hub, func(t *testing.T) {
				testshare.SkipOtherShares(t)
				steps := 0
				for c := range cuts {
					if c == killAfter && hub == "embedded" {
						continue // its callers are in the worker's process
					}
					for n := 1; ; n += interval("azure", usual().cutEvery) {
						if met := runCut(t, hub, op, c, n); !met || t.Failed() {
							break
						}
						steps++
					}
				}
				if steps < 2 {
					t.Errorf("the operation was interrupted at %d steps, want at least 2", steps)
				}
				t.Logf("it was interrupted %d times", steps)
			})
		}
	}
}

// runCut interrupts an operation at its n-th step and repeats it. It returns false if the operation has fewer
// steps.
func runCut(t *testing.T, hub string, op cutOperation, how cut, n int) (met bool) {
	t.Helper()
	dir := t.TempDir()
	s := &scissors{at: n, cut: how}
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("%v step %d", how, n)
			}
		}()
		app := new(cutApp)
		plan := &sim.Plan{Seed: 5, App: new(sim.App), Workers: 1, Partitions: 2}
		var platform sim.Platform
		var leave func()
		if hub == "embedded" {
			l, err := newLocal(plan, dir, quiet)
			if err != nil {
				t.Fatal(err)
			}
			platform, leave = l, func() {
				if err := l.leave(); err != nil {
					t.Error(err)
				}
			}
		} else {
			p, err := newStored(hub, plan, s.decide, quiet)
			if err != nil {
				t.Fatal(err)
			}
			platform, leave = p, p.close
		}
		defer leave()
		stop := workOn(t, platform, app.functions())
		defer stop()
		h := &cutHub{t, app, platform.Context(t.Context(), "client"), durable.NewClient(platform.Client(), app.functions()), platform}
		time.Sleep(3 * time.Second) // the worker has its partitions now
		op.prepare(h)
		met = h.interrupt(op, s, how)
		op.check(h)
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	return met
}

// workOn runs a worker until stop is called.
func workOn(t *testing.T, platform sim.Platform, registry *durable.Registry) (stop func()) {
	t.Helper()
	p, err := platform.Worker("w0.0", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(platform.Context(t.Context(), "w0.0"))
	ended := make(chan struct{})
	go func() { // awaited by stop
		defer close(ended)
		cfg := durable.Config{ShutdownTimeout: 2 * time.Second, EpisodeWarnAfter: time.Hour, Logger: quiet}
		if err := durable.NewWorker(p, registry, cfg).Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// interrupt runs an operation, which is interrupted, and repeats it.
func (h *cutHub) interrupt(op cutOperation, s *scissors, how cut) (met bool) {
	h.t.Helper()
	var caller provider.Client
	if l, ok := h.platform.(*local); ok {
		caller = stepClient{localClient{l}, s}
	} else {
		c, _, err := h.platform.Caller(cutCaller)
		h.must(err)
		caller = c
		defer func() {
			if c, ok := c.(interface{ Close() error }); ok && how != killAfter {
				_ = c.Close() // a dead process does not close its client
			}
		}()
	}
	client := durable.NewClient(caller, h.app.functions())
	ctx, cancel := context.WithCancel(h.platform.Context(h.t.Context(), "client "+cutCaller))
	defer cancel()
	s.arm(cancel)
	err := op.do(ctx, client)
	met = s.disarm()
	if err != nil && !met {
		h.t.Errorf("the operation failed without an interruption: %v", err)
	}
	if how == killAfter && met {
		client = h.client
	}
	again := op.do(h.ctx, client)
	if again != nil && (op.isDone == nil || !op.isDone(again)) {
		h.t.Errorf("the interrupted operation returned %v; repeated, it returned %v", err, again)
	}
	return met
}
