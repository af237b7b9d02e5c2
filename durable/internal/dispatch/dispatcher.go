package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Dispatcher runs what a provider hands out.
type Dispatcher struct {
	provider  provider.Worker
	functions Functions
	config    Config
	log       *slog.Logger
	watchdog  *watchdog

	// extended and extendedEntities have room for each extended session, entities
	// for each entity that is worked on, waiting for those that wait for that.
	extended, extendedEntities, entities, waiting chan struct{}
	orchestrations, activities                    places

	fetchingInstances, fetchingActivities, committing, completing outage

	settled settled
	items   atomic.Int64 // counts what was handed out, to label it

	mu      sync.Mutex // protects the following
	running map[*item]struct{}
	handled sync.WaitGroup
}

// An item is something that was handed out and is being worked on.
type item struct {
	label string // unique in this process
	what  string // for people
	work  string // by which crashes are counted
}

// New returns a Dispatcher of what p hands out.
func New(p provider.Worker, fns Functions, cfg Config) *Dispatcher {
	log := cfg.Logger
	if cfg.Waiting == nil {
		cfg.Waiting = new(Waiting)
	}
	return &Dispatcher{
		provider:           p,
		functions:          fns,
		config:             cfg,
		log:                log,
		watchdog:           &watchdog{limit: cfg.EpisodeWarnAfter},
		extendedEntities:   make(chan struct{}, (maxEntities(cfg)+1)/2),
		entities:           make(chan struct{}, maxEntities(cfg)),
		waiting:            make(chan struct{}, maxWaitingEntities),
		extended:           make(chan struct{}, maxExtended(cfg.MaxConcurrentOrchestrators)),
		orchestrations:     places{taken: make(chan struct{}, cfg.MaxConcurrentOrchestrators)},
		activities:         places{taken: make(chan struct{}, cfg.MaxConcurrentActivities)},
		fetchingInstances:  outage{what: "fetch orchestrations", log: log},
		fetchingActivities: outage{what: "fetch activities", log: log},
		committing:         outage{what: "commit checkpoints", log: log},
		completing:         outage{what: "send the results of activities", log: log},
		running:            make(map[*item]struct{}),
	}
}

// maxExtended returns how many of a worker's orchestrations may be in extended
// sessions: half of them, rounded up
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, concurrentSessionLock), but
// not all, as DurableTask has it for a worker of one: others would have to wait
// until the one that is kept has been idle for long enough.
func maxExtended(orchestrators int) int {
	return min((orchestrators+1)/2, orchestrators-1)
}

// errStopping is the cause that a worker's contexts end with when it stops.
var errStopping = errors.New("the worker is stopping")

// When the worker stops, storage operations may take ioGrace longer than user
// code: what was done in time is still written. What is not is handed back, for
// which there is handBackTime.
const (
	ioGrace      = 2 * time.Second
	handBackTime = 2 * time.Second
)

// lifetimes are the contexts of a worker's run, in the order in which they end.
type lifetimes struct {
	fetch context.Context // ends when the worker is to stop
	work  context.Context // ends ShutdownTimeout later: that of user code
	io    context.Context // ends ioGrace later still: that of storage operations
}

// Run works until ctx ends. Then it fetches nothing more, waits for what was
// handed out and returns nil. User code that does not end although its context
// has is left behind, and Run returns an error that names it.
//
// If the provider ends by itself, Run stops in the same way and returns the
// provider's error.
func (d *Dispatcher) Run(ctx context.Context) error {
	inuse.Tell(ctx, d.inUse)
	fetch, stop := context.WithCancelCause(ctx)
	defer stop(errStopping)
	work, release := delayed(fetch, d.config.ShutdownTimeout)
	defer release()
	io, release := delayed(fetch, d.config.ShutdownTimeout+ioGrace)
	defer release()
	live := lifetimes{fetch, work, io}

	var loops sync.WaitGroup
	var failure error
	loops.Go(func() {
		defer stop(errStopping)
		if err := d.provider.Run(fetch); err != nil && fetch.Err() == nil {
			failure = fmt.Errorf("run storage provider: %w", err)
		} else if err != nil {
			d.log.Warn("the storage provider did not stop cleanly", "error", err)
		}
	})
	loops.Go(func() { d.fetchOrchestrations(live) })
	loops.Go(func() { d.fetchActivities(live) })
	loops.Wait()
	if left := d.wait(io); left != nil {
		return errors.Join(failure, left)
	}
	return failure
}

// delayed returns a context that ends d after parent does.
func delayed(parent context.Context, d time.Duration) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	var mu sync.Mutex
	var timer *time.Timer
	unhook := context.AfterFunc(parent, func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			timer = time.AfterFunc(d, func() { cancel(errStopping) })
		}
	})
	return ctx, func() {
		unhook()
		cancel(errStopping)
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// handBack returns a context for giving up what was handed out, which may be
// because the others have ended.
func (l lifetimes) handBack() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(l.io), handBackTime)
}

// handle runs f on a goroutine of its own, for one item. Whatever f does to its
// goroutine stays there.
func (d *Dispatcher) handle(what, work string, f func(*item)) {
	it := &item{label: fmt.Sprintf("%d", d.items.Add(1)), what: what, work: work}
	d.mu.Lock()
	d.running[it] = struct{}{}
	d.mu.Unlock()
	d.handled.Go(func() {
		defer func() {
			d.mu.Lock()
			delete(d.running, it)
			d.mu.Unlock()
		}()
		labelled(it, func() { f(it) })
	})
}

// wait waits until all that was handed out is dealt with, or until shortly
// after io ends: then whatever still runs is user code that does not heed its
// context, and is named in the error.
func (d *Dispatcher) wait(io context.Context) error {
	all := make(chan struct{})
	go func() { // ends with the last item, and is left behind with it
		d.handled.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-io.Done():
	}
	last := time.NewTimer(handBackTime + time.Second)
	defer last.Stop()
	select {
	case <-all:
		return nil
	case <-last.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for it := range d.running {
		names = append(names, it.what)
	}
	slices.Sort(names)
	return fmt.Errorf("stopped while user code goes on that does not heed its context: %s", strings.Join(names, ", "))
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
