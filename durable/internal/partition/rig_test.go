package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
)

// rig is a running partition and the test that drives it.
type rig struct {
	*partitiontest.Stage
	*Partition
	disk *disk
	stop func()
}

// disk is a log in memory. Its base stays empty.
type disk struct {
	tables         logstore.Tables
	off            atomic.Bool     // Append fails
	most           atomic.Int64    // the maximum size of a group, in bytes; 0 for none
	kept           *logstore.Layer // the appended changes; used by the writer
	put            map[string]bool // the keys of transient tables that were put; used by the writer
	opens, crashes uint64
	open           bool
}

func newDisk() *disk { return diskOf(Tables) }

func diskOf(tables logstore.Tables) *disk {
	return &disk{tables: tables, kept: logstore.NewLayer(tables, 0), put: map[string]bool{}}
}

// copy returns the disk in the state that a crash would leave now.
func (d *disk) copy() *disk {
	c := &disk{tables: d.tables, put: maps.Clone(d.put), kept: logstore.NewLayer(d.tables, d.kept.Last), opens: d.opens, crashes: d.crashes, open: d.open}
	for table := range d.tables {
		d.kept.Changes(logstore.Table(table), func(key string, value []byte) bool {
			c.kept.Set(logstore.Table(table), key, value)
			return true
		})
	}
	return c
}

func (d *disk) Append(number uint64, changes logstore.Parts) error {
	if d.off.Load() {
		return errors.New("the disk is off")
	}
	if most := d.most.Load(); most > 0 && int64(changes.Size()) > most {
		return logstore.ErrTooLarge
	}
	if err := d.checkTransient(number, bytes.Join(changes, nil)); err != nil {
		return err
	}
	return d.kept.Replay(number, bytes.Join(changes, nil))
}

// checkTransient returns an error if a group puts a record of a transient table whose key was
// used before. If the base had the first record, that one would return when the second one is
// deleted.
func (d *disk) checkTransient(number uint64, changes []byte) (err error) {
	group := logstore.NewLayer(d.tables, number-1)
	if err := group.Replay(number, changes); err != nil {
		return err
	}
	for table, info := range d.tables {
		group.Changes(logstore.Table(table), func(key string, value []byte) bool {
			if at := info.Name + "/" + key; info.Transient && value != nil {
				if d.put[at] {
					err = fmt.Errorf("record %q of a transient table was put twice", at)
				}
				d.put[at] = true
			}
			return err == nil
		})
	}
	return err
}

func (d *disk) Reserve(int64) error {
	if d.off.Load() {
		return errors.New("the disk is off")
	}
	return nil
}

func (d *disk) Size() int64      { return 0 }
func (d *disk) Rotate()          {}
func (d *disk) Close(bool) error { return nil }

// base is a base in memory that is never written. Reading it fails if the reader has locked the
// partition's mu, because reading a real base can take long.
type base struct {
	kept      *logstore.Layer
	partition atomic.Pointer[Partition]
}

func (b *base) View(f func(logstore.Reader) error) error { return f(b) }
func (*base) Write(*logstore.Layer, bool) error          { return errors.New("the base is read-only") }
func (*base) Close() error                               { return nil }

func (b *base) Get(table logstore.Table, key []byte) (found []byte, err error) {
	err = b.Scan(table, key, func(at []byte, value func() ([]byte, error)) (bool, error) {
		if bytes.Equal(at, key) {
			found, _ = value()
		}
		return true, nil
	})
	return found, err
}

func (b *base) Scan(table logstore.Table, from []byte, f func([]byte, func() ([]byte, error)) (bool, error)) (err error) {
	if p := b.partition.Load(); p != nil {
		for tries := 0; !p.mu.TryLock(); runtime.Gosched() { // a bubble's clock stands still meanwhile
			if tries++; tries == 1e8 {
				return errors.New("the base was read while mu was locked")
			}
		}
		p.mu.Unlock()
	}
	b.kept.Changes(table, func(key string, value []byte) (more bool) {
		if value == nil || key < string(from) {
			return true
		}
		var stop bool
		stop, err = f([]byte(key), func() ([]byte, error) { return value, nil })
		return !stop && err == nil
	})
	return err
}

func (b *base) Group(table logstore.Table, group uint64, f func([]byte, func() ([]byte, error)) error) error {
	prefix := logstore.NumberKey(group)
	return b.Scan(table, prefix, func(key []byte, value func() ([]byte, error)) (bool, error) {
		if !bytes.HasPrefix(key, prefix) {
			return true, nil
		}
		return false, f(key, value)
	})
}

func (b *base) Last(table logstore.Table, group uint64) (last []byte, err error) {
	err = b.Group(table, group, func(key []byte, _ func() ([]byte, error)) error {
		last = key
		return nil
	})
	return last, err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return openRig(t, newDisk())
}

// openWith opens the partition on the disk.
func (d *disk) openWith(cfg Config) (*Partition, error) {
	d.opens++
	if d.open {
		d.crashes++
	}
	d.open = true
	cfg.Name, cfg.OpenCount, cfg.CrashCount = "task hub", d.opens, d.crashes
	base := &base{kept: d.copy().kept}
	p, err := Open(logstore.New(base, d, logstore.NewLayer(d.tables, base.kept.Last), cfg.Logger), cfg)
	base.partition.Store(p)
	return p, err
}

func rigConfig() Config {
	return Config{
		AbandonDelay: time.Millisecond, MaxAbandonDelay: time.Minute, DrainTimeout: time.Second, PageSize: 100, Logger: slog.New(slog.DiscardHandler),
	}
}

func openRig(t *testing.T, d *disk) *rig {
	t.Helper()
	return openRigWith(t, d, rigConfig())
}

func openRigWith(t *testing.T, d *disk, cfg Config) *rig {
	t.Helper()
	p, err := d.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		_ = p.Run(ctx) // nil, or the partition is closed
	}()
	r := &rig{Stage: &partitiontest.Stage{T: t, Hub: p}, Partition: p, disk: d, stop: func() { cancel(); <-done }}
	t.Cleanup(func() {
		r.stop()
		_ = closeAll(p) // may be closed already
	})
	return r
}

// close stops and closes the partition.
func (r *rig) close() {
	r.Helper()
	r.Must(closeAll(r.Partition))
	r.disk.open = false
}

// closeAll closes a partition and its store.
func closeAll(p *Partition) error {
	first, err := p.Close()
	if first {
		p.store.Stop()
	}
	return err
}

// groups returns the number of groups in the log.
func (r *rig) groups() uint64 {
	var n uint64
	r.Must(r.writer.Do(context.Background(), func(*txn) error { n = r.store.Last(); return nil }))
	return n
}

// wantNoWork fails the test if the partition holds any work in memory.
func (r *rig) wantNoWork() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.instances)+len(r.sessions)+len(r.locks)+len(r.delivered)+len(r.alarms) > 0 {
		r.Errorf("the hub still holds %d instances, %d sessions, %d locks, %d activities and %d alarms",
			len(r.instances), len(r.sessions), len(r.locks), len(r.delivered), len(r.alarms))
	}
}
