package embedded

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A rig is a hub that runs, and who works on it.
type rig struct {
	*testing.T
	*Hub
	disk *switchedDisk // of the journal
	stop func()
}

// switchedDisk is a disk that writes nothing while it is off.
type switchedDisk struct {
	disk.System
	off atomic.Bool
}

func (d *switchedDisk) Open(path string) (disk.File, error) {
	f, err := d.System.Open(path)
	return switchedFile{f, d}, err
}

type switchedFile struct {
	disk.File
	disk *switchedDisk
}

func (f switchedFile) WriteAt(b []byte, at int64) (int, error) {
	if f.disk.off.Load() {
		return 0, errors.New("the disk is off")
	}
	return f.File.WriteAt(b, at)
}

// copyHub copies the files of an open hub, as a process that dies leaves them.
func copyHub(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{".journal-0", ".journal-1", ""} {
		if err := powerloss.CopyFile(from+suffix, to+suffix); err != nil {
			t.Fatal(err)
		}
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return openRig(t, filepath.Join(t.TempDir(), "hub.db"))
}

func openRig(t *testing.T, path string) *rig {
	t.Helper()
	return openRigWith(t, path, Config{})
}

func openRigWith(t *testing.T, path string, cfg Config) *rig {
	t.Helper()
	d := new(switchedDisk)
	t.Cleanup(disk.Replace(filepath.Dir(path), d))
	cfg.AbandonDelay, cfg.DrainTimeout, cfg.Logger = time.Millisecond, time.Second, slog.New(slog.DiscardHandler)
	h, err := Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // awaited by stop
		defer close(done)
		_ = h.Run(ctx) // nil, or that the hub is closed
	}()
	r := &rig{T: t, Hub: h, disk: d, stop: func() { cancel(); <-done }}
	t.Cleanup(func() {
		r.stop()
		_ = h.Close() // may have been closed
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) start(id string) history.OrchestrationInstance {
	r.Helper()
	return r.startAt(id, time.Time{})
}

func (r *rig) startAt(id string, at time.Time) history.OrchestrationInstance {
	r.Helper()
	start := &history.ExecutionStarted{
		Header: history.NewHeader(time.Now()), Name: "Orchestrator", ScheduledStart: history.Ticks(at),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "execution of " + id},
	}
	r.must(r.StartInstance(r.Context(), provider.TaskMessage{Event: start, Target: start.Instance}, nil))
	return start.Instance
}

func (r *rig) send(id, name string) {
	r.Helper()
	e := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name}
	r.must(r.Send(r.Context(), provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: id}}))
}

func (r *rig) next() *provider.OrchestrationWorkItem {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	item, err := r.NextOrchestration(ctx)
	r.must(err)
	return item
}

func (r *rig) nextActivity() *provider.ActivityWorkItem {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	a, err := r.NextActivity(ctx)
	r.must(err)
	return a
}

// taking returns a checkpoint that takes an item's messages and decides
// something.
func taking(item *provider.OrchestrationWorkItem, decided ...history.Event) *provider.Checkpoint {
	cp := &provider.Checkpoint{Instance: item.Instance}
	for _, m := range item.Messages {
		cp.NewEvents = append(cp.NewEvents, m.Event)
	}
	for _, e := range decided {
		cp.NewEvents = append(cp.NewEvents, e)
		switch e := e.(type) {
		case *history.TaskScheduled:
			cp.Activities = append(cp.Activities, provider.TaskMessage{Event: e, Target: item.Instance})
		case *history.TimerCreated:
			fired := &history.TimerFired{Header: history.NewHeader(time.Now()), TimerID: e.EventID, FireAt: e.FireAt}
			cp.Timers = append(cp.Timers, provider.TaskMessage{Event: fired, Target: item.Instance})
		}
	}
	return cp
}

func (r *rig) finish(item *provider.OrchestrationWorkItem, decided ...history.Event) {
	r.Helper()
	r.must(item.Session.Commit(r.Context(), taking(item, decided...)))
	r.must(item.Session.Release(r.Context()))
}

func scheduled(id int) *history.TaskScheduled {
	return &history.TaskScheduled{Header: history.Header{EventID: id}, Name: "Activity"}
}

func ended() *history.ExecutionCompleted {
	return &history.ExecutionCompleted{Header: history.Header{EventID: 100}, Status: history.Completed}
}

func resultOf(id int) *history.TaskCompleted {
	return &history.TaskCompleted{Header: history.NewHeader(time.Now()), TaskScheduledID: id}
}

// groups returns how many groups the journal has got.
func (r *rig) groups() uint64 {
	var n uint64
	r.must(r.writer.Do(context.Background(), func(*txn) error { n = r.store.Last(); return nil }))
	return n
}

// forgets fails the test if the hub has anything in memory.
func (r *rig) forgets() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.instances)+len(r.sessions)+len(r.locks)+len(r.delivered)+len(r.alarms) > 0 {
		r.Errorf("the hub remembers %d instances, %d sessions, %d locks, %d activities and %d alarms",
			len(r.instances), len(r.sessions), len(r.locks), len(r.delivered), len(r.alarms))
	}
}
