package durabletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// TB is what a [Hub] needs of a testing.TB. Fatalf must not return.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// DefaultMaxEpisodes is how many episodes a hub runs at the bidding of one call,
// unless [Hub.MaxEpisodes] says otherwise.
const DefaultMaxEpisodes = 100_000

// epoch is when a hub's clock begins, as that of a testing/synctest bubble does.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A Hub is a task hub in memory and in virtual time, with a worker. It belongs
// to one test, and to the goroutine of that test; only its [Hub.Client] may be
// used by others.
type Hub struct {
	// MaxEpisodes is how many episodes one call may run before the test fails,
	// so that an orchestrator which never ends does not keep the test for ever.
	// Zero means 100,000.
	MaxEpisodes int

	t      TB
	ctx    context.Context // of activities; ends with the test
	store  *memhub.Hub
	client *durable.Client
	logger *slog.Logger

	// The test's goroutine owns the following.
	registry  *durable.Registry
	instances map[string]*instance // those in memory, by ID
	entities  dispatch.EntityStepper
	started   int  // instances that were given an ID
	answers   bool // HTTP requests are answered by a stub

	mu           sync.Mutex // protects the following
	running      bool
	now          time.Time
	appointments []appointment // by time, and then as they were made
	executions   int
	calls        map[string][]*string // inputs by the activity's name in upper case
}

// An appointment is something to do at a time.
type appointment struct {
	at time.Time
	do func()
}

// An instance is what the hub has in memory of an instance that has not ended.
type instance struct {
	stepper
	waits map[*replay.Future]time.Time // for external events, with when they began
}

// New returns a Hub that runs fns, which must be as [durable.NewRegistry] wants
// them. It has no instances.
func New(t TB, fns ...*durable.Function) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		t: t, ctx: ctx, now: epoch,
		store:     memhub.New(),
		instances: make(map[string]*instance),
		calls:     make(map[string][]*string),
	}
	h.store.Now = h.Now
	h.logger = newLogger(h)
	h.registry = durable.NewRegistry(fns...).WithLogger(h.logger)
	h.client = durable.NewClient(&clientHub{h.store, h}, h.registry)
	t.Cleanup(func() {
		cancel()
		for _, i := range h.instances {
			i.Close()
		}
	})
	return h
}

// Now returns the hub's time.
func (h *Hub) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// functions returns the functions of the registry, as the engine runs them.
func (h *Hub) functions() dispatch.AllFunctions { return dispatch.FunctionsOf(h.registry) }

// Elapsed returns how much of the hub's time has passed since [New].
func (h *Hub) Elapsed() time.Duration { return h.Now().Sub(epoch) }

// Client returns a client of the hub, for the code under test that needs one.
// What it sends is taken when the hub next runs; it may be used by several
// goroutines, and by activities and functions given to [Hub.After].
//
// Waiting by a client takes real time and lets nothing happen, so that a call
// which waits for an instance does not return: use [Instance.Wait] and
// [Hub.Advance], and terminate an instance and its children one by one, since a
// Terminate with durable.Recursive waits for each of them.
func (h *Hub) Client() *durable.Client { return h.client }

// After has f called when d has passed. It may use the hub, but not wait. d below
// zero counts as zero.
//
// If f raises an event at the very time at which a timer is due, the timer comes
// first.
func (h *Hub) After(d time.Duration, f func()) {
	h.at(h.Now().Add(max(d, 0)), f)
}

func (h *Hub) at(at time.Time, do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.appointments, at, func(a appointment, at time.Time) int {
		if a.at.After(at) {
			return 1
		}
		return -1 // also if it is for the same time: the new one comes after it
	})
	h.appointments = slices.Insert(h.appointments, i, appointment{at, do})
}

// appointment takes the next appointment if it is due. Else next is when it is,
// zero if there is none.
func (h *Hub) appointment() (do func(), next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.appointments) == 0 {
		return nil, time.Time{}
	}
	a := h.appointments[0]
	if a.at.After(h.now) {
		return nil, a.at
	}
	h.appointments = h.appointments[1:]
	return a.do, time.Time{}
}

// newExecutionID returns 32 hexadecimal digits, as .NET has them: the executions
// of a hub are numbered.
func (h *Hub) newExecutionID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.executions++
	return fmt.Sprintf("%032x", h.executions)
}

// note remembers the input of an activity that is run.
func (h *Hub) note(name string, input *string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name = strings.ToUpper(name)
	h.calls[name] = append(h.calls[name], input)
}

// lookup returns what a function is registered as, and fails the test if it is
// not.
func (h *Hub) lookup(fn any) *durable.Function {
	h.t.Helper()
	f, err := h.registry.Lookup(fn)
	if err != nil {
		h.t.Fatalf("%v: give its Function to New", err)
	}
	return f
}
