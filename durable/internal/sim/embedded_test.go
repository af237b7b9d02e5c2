package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	bolt "go.etcd.io/bbolt"
)

// local is a hub in a local file. One process at a time has the hub, with its worker and clients. When the
// process dies, the next process opens the files as they are at that time. Unless the hub is relaxed, the
// machine loses power at the same time. The next process then finds the synced data, and parts of the
// other data.
type local struct {
	plan   *sim.Plan
	dir    string
	logger *slog.Logger
	begin  time.Time

	// turn is held while a client uses the hub or the hub is replaced.
	turn  chan struct{}
	hub   *embedded.Hub
	disk  *powerloss.Disk // of the current hub; nil if it is relaxed
	used  bool            // Run of the current hub was called
	dead  []*embedded.Hub
	n     int
	rolls *rand.Rand // random numbers for the faults of the worker

	restore []func() // restore functions of the disks
}

func newLocal(p *sim.Plan, dir string, logger *slog.Logger) (*local, error) {
	l := &local{plan: p, dir: dir, logger: logger, begin: time.Now(), turn: make(chan struct{}, 1), rolls: rand.New(rand.NewPCG(p.Seed, 0xE3B))}
	var err error
	l.hub, err = l.open(l.path())
	return l, err
}

// path returns the path of the hub's file. Each process has its own folder.
func (l *local) path() string { return filepath.Join(l.dir, fmt.Sprint(l.n), "hub.db") }

func (l *local) open(path string) (*embedded.Hub, error) {
	relaxed := l.plan.Seed%4 == 0
	if dir := filepath.Dir(path); l.disk == nil && !relaxed {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		d, restore, err := powerloss.Install(dir)
		if err != nil {
			return nil, err
		}
		l.disk, l.restore = d, append(l.restore, restore)
		d.Before(l.delaySome)
	}
	return embedded.Open(path, embedded.Config{DrainTimeout: time.Second, Relaxed: relaxed, Logger: l.logger})
}

// delaySome delays some calls of the disk. Meanwhile others continue, and the machine can lose power.
func (l *local) delaySome(string) {
	if n := time.Now().UnixNano() % 7; n < 2 { // pseudorandom but deterministic
		time.Sleep(time.Duration(n+1) * 3 * time.Millisecond)
	}
}

// with calls f with the current hub, which is not replaced meanwhile.
func (l *local) with(f func(h *embedded.Hub) error) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return f(l.hub)
}

func (l *local) Client() provider.Client { return localClient{l} }

// Caller returns a client for callers that give up. Some of its calls are not made, or their result is lost.
// No simulated time passes within a call.
func (l *local) Caller(name string) (provider.Client, func(), error) {
	return callerOf{localClient{l}, l}, func() {}, nil
}

type callerOf struct {
	localClient
	l *local
}

func (c callerOf) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if _, impatient := ctx.Deadline(); !impatient {
		return c.localClient.StartInstance(ctx, start, refuse)
	}
	c.l.turn <- struct{}{}
	way := c.l.rolls.IntN(3)
	<-c.l.turn
	var err error
	switch way {
	case 0: // interrupted during the call
		cut, cancel := context.WithCancel(ctx)
		go cancel()
		if err = c.localClient.StartInstance(cut, start, refuse); !errors.Is(err, context.Canceled) {
			return err
		}
	case 1: // the result arrives too late
		if err = c.localClient.StartInstance(ctx, start, refuse); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (l *local) Context(ctx context.Context, _ string) context.Context { return ctx }

func (l *local) KeepsOrder() bool { return true }

func (l *local) Settle() {}

func (l *local) Audit() []string { return nil }

func (l *local) Inspect([]sim.ActivityRun) []string { return nil }

func (l *local) Status(id string) (status history.RuntimeStatus, err error) {
	err = l.with(func(h *embedded.Hub) error {
		state, err := h.Instance(context.Background(), id, provider.Fetch{})
		if err == nil {
			status = state.Status
		}
		return err
	})
	return status, err
}

// totals counts the contents of the hub.
func (l *local) totals() (t provider.Totals, err error) {
	err = l.with(func(h *embedded.Hub) (err error) {
		t, err = h.Totals(context.Background())
		return err
	})
	return t, err
}

func (l *local) Pending() []string {
	t, err := l.totals()
	if err != nil {
		return []string{err.Error()}
	}
	if t.Messages+t.Activities > 0 {
		return []string{t.String()}
	}
	return nil
}

// Stored must be called without a running worker.
func (l *local) Stored() []string {
	var all lister
	err := l.with(func(h *embedded.Hub) error {
		return h.Export(context.Background(), &all, provider.ExportOptions{})
	})
	if err != nil {
		all = append(all, err.Error())
	}
	return all
}

// lister describes the contents of a hub.
type lister []string

func (l *lister) Instance(_ context.Context, state *provider.InstanceState, past []history.Event) error {
	*l = append(*l, fmt.Sprintf("instance %s, %v, with %d events", state.Instance.InstanceID, state.Status, len(past)))
	return nil
}

func (l *lister) Activity(_ context.Context, task provider.TaskMessage) error {
	*l = append(*l, fmt.Sprintf("activity %+v of %+v", task.Event, task.Target))
	return nil
}

func (l *lister) Message(_ context.Context, m provider.TaskMessage) error {
	*l = append(*l, fmt.Sprintf("%v for %+v, due %v: %+v", m.Event.Type(), m.Target, provider.DueTime(m), m.Event))
	return nil
}

// close closes all files. The last hub file must contain no instance data.
func (l *local) close() error {
	return errors.Join(l.leave(), recordsIn(l.path()))
}

// leave closes all files without checking their contents.
func (l *local) leave() error {
	errs := []error{l.hub.Close()}
	for _, h := range l.dead {
		errs = append(errs, h.Close())
	}
	for _, restore := range l.restore {
		restore()
	}
	return errors.Join(errs...)
}

// recordsIn returns an error if a hub file contains records outside of the hub's own bucket, such as records
// of an execution without an instance.
func recordsIn(path string) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bolt.Tx) error {
		var errs []error
		err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if string(name) == "hub" {
				return nil
			}
			return b.ForEach(func(key, _ []byte) error {
				errs = append(errs, fmt.Errorf("left after the purge: record %x of %s", key, name))
				return nil
			})
		})
		return errors.Join(append(errs, err)...)
	})
	return errors.Join(err, db.Close())
}

func (l *local) Worker(string, time.Duration) (sim.Process, error) {
	p := &localProcess{local: l, dead: make(chan struct{})}
	err := l.with(func(h *embedded.Hub) (err error) {
		if l.used {
			if err := h.Close(); err != nil {
				return err
			}
			l.hub = l.reopen()
		}
		l.used, p.Hub = true, l.hub
		return nil
	})
	return p, err
}

// localProcess is the process that has the hub.
type localProcess struct {
	*embedded.Hub
	local *local

	once sync.Once
	dead chan struct{}
}

func (p *localProcess) Dead() <-chan struct{} { return p.dead }

func (p *localProcess) Freeze(time.Duration) {} // has no effect: no other process would notice

func (p *localProcess) FrozenSince() (time.Time, bool) { return time.Time{}, false }

// Kill ends the process: another hub opens the files as they are now.
func (p *localProcess) Kill() {
	p.once.Do(func() {
		err := p.local.with(func(h *embedded.Hub) error {
			close(p.dead) // before the copy; later operations must have no effect
			return p.local.inherit(h)
		})
		if err != nil {
			panic(fmt.Sprintf("copy the files of a hub: %v", err)) // the test's folder is unusable
		}
	})
}

// inherit replaces h by a hub that opens a copy of its files. l.turn must be held.
func (l *local) inherit(h *embedded.Hub) error {
	from := filepath.Dir(l.path())
	l.n++
	to := filepath.Dir(l.path())
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var err error
	if l.disk != nil {
		err = l.disk.Lose(l.rolls, to, powerloss.CopyFile)
		l.disk = nil
	} else {
		for _, name := range []string{"hub.db.journal-0", "hub.db.journal-1", "hub.db"} {
			err = errors.Join(err, powerloss.CopyFile(filepath.Join(from, name), filepath.Join(to, name)))
		}
	}
	if err != nil {
		return err
	}
	l.dead, l.hub, l.used = append(l.dead, h), l.reopen(), false
	return nil
}

// reopen opens the hub file of the previous process. It panics if that fails.
func (l *local) reopen() *embedded.Hub {
	h, err := l.open(l.path())
	if err != nil {
		panic(fmt.Sprintf("seed %d: open the hub of the previous process: %v", l.plan.Seed, err))
	}
	return h
}

// mayDie randomly kills the process. It reports whether the process is dead.
func (p *localProcess) mayDie() bool {
	select {
	case <-p.dead:
		return true
	default:
	}
	if time.Since(p.local.begin) > p.local.plan.Quiet {
		return false
	}
	p.local.turn <- struct{}{}
	roll := p.local.rolls.Float64()
	<-p.local.turn
	if roll >= p.local.plan.Faults/2 {
		return false
	}
	p.Kill()
	return true
}

var errDead = errors.New("the process is dead")

// NextOrchestration returns sessions during whose Commit the process may die.
func (p *localProcess) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item, err := p.Hub.NextOrchestration(ctx)
	if err == nil {
		item.Session = mortalSession{item.Session, p}
	}
	return item, err
}

type mortalSession struct {
	provider.Session
	p *localProcess
}

func (s mortalSession) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	if s.p.mayDie() {
		return errDead
	}
	err := s.Session.Commit(ctx, cp)
	if err == nil && s.p.mayDie() {
		return errDead
	}
	return err
}

// NextActivity returns activities during whose Complete the process may die.
func (p *localProcess) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	item, err := p.Hub.NextActivity(ctx)
	if err == nil {
		item.Lock = mortalLock{item.Lock, p}
	}
	return item, err
}

type mortalLock struct {
	provider.ActivityLock
	p *localProcess
}

func (l mortalLock) Complete(ctx context.Context, result history.Event) error {
	if l.p.mayDie() {
		return errDead
	}
	err := l.ActivityLock.Complete(ctx, result)
	if err == nil && l.p.mayDie() {
		return errDead
	}
	return err
}

// localClient is a client of the current hub.
type localClient struct{ l *local }

var _ provider.Purger = localClient{}

func (c localClient) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	return c.l.with(func(h *embedded.Hub) error { return h.StartInstance(ctx, start, refuse) })
}

func (c localClient) Send(ctx context.Context, m provider.TaskMessage) error {
	return c.l.with(func(h *embedded.Hub) error { return h.Send(ctx, m) })
}

func (c localClient) Instance(ctx context.Context, id string, fetch provider.Fetch) (s *provider.InstanceState, err error) {
	err = c.l.with(func(h *embedded.Hub) error { s, err = h.Instance(ctx, id, fetch); return err })
	return s, err
}

func (c localClient) Instances(ctx context.Context, q provider.Query) (p *provider.Page, err error) {
	err = c.l.with(func(h *embedded.Hub) error { p, err = h.Instances(ctx, q); return err })
	return p, err
}

func (c localClient) History(ctx context.Context, id string) (past []history.Event, err error) {
	err = c.l.with(func(h *embedded.Hub) error { past, err = h.History(ctx, id); return err })
	return past, err
}

func (c localClient) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return c.l.with(func(h *embedded.Hub) error { return h.Purge(ctx, id, seen) })
}

func (c localClient) Rewind(ctx context.Context, id, reason string) error {
	return c.l.with(func(h *embedded.Hub) error { return h.Rewind(ctx, id, reason) })
}
