package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
	"github.com/google/go-cmp/cmp"
)

// memoryLog is a log in memory.
type memoryLog struct {
	groups map[uint64][]byte
	size   int64
	fails  error // the error of Append
	most   int   // the largest size of a group; 0 means no limit
}

func (l *memoryLog) Append(number uint64, changes Parts) error {
	if l.fails != nil {
		return l.fails
	}
	if l.most > 0 && changes.Size() > l.most {
		return ErrTooLarge
	}
	l.groups[number] = bytes.Join(changes, nil)
	l.size += int64(changes.Size())
	return nil
}
func (l *memoryLog) Size() int64         { return l.size }
func (l *memoryLog) Rotate()             { l.size = 0 }
func (l *memoryLog) Reserve(int64) error { return l.fails }
func (l *memoryLog) Close(bool) error    { return nil }

// memoryBase is a base in memory.
type memoryBase struct {
	mu      sync.Mutex
	records [3]map[string][]byte
	last    uint64
	fails   error // the error of Write
	unread  error // the error of View
}

func (b *memoryBase) View(f func(Reader) error) error {
	if b.unread != nil {
		return b.unread
	}
	now := &memoryBase{}
	b.mu.Lock()
	for table := range b.records {
		now.records[table] = maps.Clone(b.records[table])
	}
	b.mu.Unlock()
	return f(now)
}

func (b *memoryBase) Close() error { return nil }

func (b *memoryBase) Write(l *Layer, _ bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	for table := range b.records {
		l.Changes(Table(table), func(key string, value []byte) bool {
			if value != nil {
				b.records[table][key] = value
			} else {
				delete(b.records[table], key)
			}
			return true
		})
	}
	b.last = l.Last
	return nil
}

func (b *memoryBase) Get(table Table, key []byte) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records[table][string(key)], nil
}

func (b *memoryBase) Scan(table Table, from []byte, f func([]byte, func() ([]byte, error)) (bool, error)) error {
	b.mu.Lock()
	records := maps.Clone(b.records[table])
	b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if key < string(from) {
			continue
		}
		if stop, err := f([]byte(key), func() ([]byte, error) { return records[key], nil }); stop || err != nil {
			return err
		}
	}
	return nil
}

func (b *memoryBase) Group(table Table, group uint64, f func([]byte, func() ([]byte, error)) error) error {
	return b.Scan(table, NumberKey(group), func(key []byte, value func() ([]byte, error)) (bool, error) {
		if !bytes.HasPrefix(key, NumberKey(group)) {
			return true, nil
		}
		return false, f(key, value)
	})
}

func (b *memoryBase) Last(table Table, group uint64) (last []byte, err error) {
	err = b.Group(table, group, func(key []byte, _ func() ([]byte, error)) error {
		last = key
		return nil
	})
	return last, err
}

// stage is a store in memory and the test that uses it.
type stage struct {
	*testing.T
	*Store
	groups *memoryLog
	base   *memoryBase
	w      *Writer[*Txn]
}

func newStage(t *testing.T, groups *memoryLog, base *memoryBase, recovered *Layer) *stage {
	s := New(base, groups, recovered, slog.New(slog.DiscardHandler))
	s.Limits = Limits{FlushSize: 500, WaitSize: 1000, RetryInterval: time.Millisecond}
	s.Start()
	w := NewWriter(s, WriterConfig[*Txn]{
		Begin: func(t *Txn) *Txn { return t }, Effects: new(sync.Mutex), Failed: func(err error) error { return err },
	})
	return &stage{t, s, groups, base, w}
}

func emptyStage(t *testing.T) *stage {
	return newStage(t, &memoryLog{groups: map[uint64][]byte{}}, &memoryBase{records: [3]map[string][]byte{{}, {}, {}}}, NewLayer(testTables, 0))
}

// wantErrors submits operations that join one group, and compares their errors. The writer calls before
// first.
func (s *stage) wantErrors(before func(), ops []*Op[*Txn], want ...error) {
	s.Helper()
	started, busy := make(chan struct{}), make(chan struct{})
	first := NewOp(func(*Txn) error { // until the other operations are queued
		close(started)
		<-busy
		before()
		return nil
	})
	for _, o := range append([]*Op[*Txn]{first}, ops...) {
		if err := s.w.Submit(o); err != nil {
			s.Fatal(err)
		}
		<-started
	}
	close(busy)
	if err := s.w.Await(s.Context(), first); err != nil {
		s.Error(err)
	}
	for i, o := range ops {
		if err := s.w.Await(s.Context(), o); !errors.Is(err, want[i]) {
			s.Errorf("operation %d: %v; want %v", i, err, want[i])
		}
	}
}

func (s *stage) put(table Table, key, value string) error {
	return s.w.Do(context.Background(), func(t *Txn) error {
		t.Put(table, []byte(key), []byte(value))
		return nil
	})
}

func (s *stage) close() {
	s.Helper()
	if err := errors.Join(s.w.Close(func(*Txn) error { return nil }), s.Store.Close()); err != nil {
		s.Error(err)
	}
}

// contents returns all readable records.
func (s *stage) contents() map[string]string {
	s.Helper()
	all := map[string]string{}
	err := s.View(func(v *View) error {
		for table := range testTables {
			err := v.Scan(Table(table), "", func(key string, value []byte) (bool, error) {
				all[fmt.Sprint(table, " ", key)] = string(value)
				return false, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// Writes do not wait for a snapshot, and the snapshot does not see them, in whatever layer they
// are.
func TestStore_WritesDoNotWaitForASnapshot(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	if err := s.put(plain, "a", "before"); err != nil {
		t.Fatal(err)
	}
	err := s.Snapshot(func(v *View) error {
		for n := range 100 { // more than fit into the active layer
			if err := errors.Join(s.put(plain, "a", strings.Repeat("x", 50)), s.put(plain, fmt.Sprint("new ", n), "new")); err != nil {
				return err
			}
		}
		return v.Scan(plain, "", func(key string, value []byte) (bool, error) {
			if key != "a" || string(value) != "before" {
				t.Errorf("the snapshot contains %s: %.10s", key, value)
			}
			return false, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.contents()); n != 101 {
		t.Errorf("%d records were written; want 101", n)
	}
	s.close()
}

// Any log and any base can be used. Every record can be read, whether it is in a layer or in
// the base. The base and the log's groups after the base's last one contain everything.
func TestStore_WorksWithAnyLogAndBase(t *testing.T) {
	t.Parallel()
	s, r, want := emptyStage(t), rand.New(rand.NewPCG(1, 2)), map[string]string{}
	for n := range 500 {
		table, key, value := Table(r.IntN(2)), fmt.Sprintf("%08d-%d", r.IntN(5), r.IntN(5)), fmt.Sprint("value ", n)
		if err := s.put(table, key, value); err != nil {
			t.Fatal(err)
		}
		want[fmt.Sprint(table, " ", key)] = value
		if n%50 == 0 {
			if diff := cmp.Diff(want, s.contents()); diff != "" {
				t.Fatalf("records after %d groups (-want +got):\n%s", n+1, diff)
			}
		}
	}
	reached := func() uint64 {
		s.base.mu.Lock()
		defer s.base.mu.Unlock()
		return s.base.last
	}
	patience.Until(t, "a layer is in the base", func() bool { return reached() > 0 })
	s.base.mu.Lock()
	last := s.base.last
	recovered := NewLayer(testTables, last)
	for number := last + 1; number <= 500; number++ {
		if err := recovered.Replay(number, s.groups.groups[number]); err != nil {
			t.Error(err)
		}
	}
	base := &memoryBase{last: last}
	for table := range base.records {
		base.records[table] = maps.Clone(s.base.records[table])
	}
	s.base.mu.Unlock()
	again := newStage(t, &memoryLog{groups: map[uint64][]byte{}}, base, recovered)
	if diff := cmp.Diff(want, again.contents()); diff != "" {
		t.Errorf("records after a crash (-want +got):\n%s", diff)
	}
	again.close()
	s.close()
	if s.base.last != 500 || base.last != 500 {
		t.Errorf("the last groups of the bases are %d and %d; want 500", s.base.last, base.last)
	}
}

func TestStore_ALargeGroupWaitsForTheBase(t *testing.T) {
	t.Parallel()
	s, full := emptyStage(t), errors.New("full")
	s.base.fails = full
	if err := s.put(plain, "a", strings.Repeat("x", 600)); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the base fails", func() bool { _, err := s.Flushing(); return err != nil })
	if err := s.put(plain, "b", strings.Repeat("x", 1000)); !errors.Is(err, full) {
		t.Errorf("a group of the maximum size: %v; want %v", err, full)
	}
	if err := s.put(plain, "b", "x"); err != nil {
		t.Errorf("a small group: %v", err)
	}
}

// Early collection costs a third of the throughput, so a large group of small values does not start it.
func TestStore_ManySmallValuesDoNotCollectEarly(t *testing.T) {
	setting := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	s := emptyStage(t)
	defer s.close()
	before := setting()
	err := s.w.Do(t.Context(), func(t *Txn) error {
		for n := range 2 * reclaim.Large >> 10 {
			t.Put(plain, []byte(fmt.Sprint(n)), make([]byte, 1<<10))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the base has the group", func() bool {
		flushing, err := s.Flushing()
		return !flushing && err == nil
	})
	if now := setting(); now < before { // another test's large value can end early collection meanwhile
		t.Errorf("the garbage collector's setting is %d, want %d", now, before)
	}
}

func TestStore_WritesNothingAfterAnUncertainGroup(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	doubt := errors.New("no answer")
	s.groups.fails = &UncertainError{doubt}
	if err := s.put(plain, "a", "1"); !errors.Is(err, doubt) {
		t.Errorf("got %v, want %v", err, doubt)
	}
	s.groups.fails = nil
	if err := s.put(plain, "b", "1"); !errors.Is(err, doubt) {
		t.Errorf("a later write returned %v; want %v", err, doubt)
	}
	if got := s.contents(); len(got) > 0 || len(s.groups.groups) > 0 {
		t.Errorf("the store contains %v and the log has %d groups; want no record and no group", got, len(s.groups.groups))
	}
}

func TestStore_RemembersTheLargestGroupThatFailed(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	put := func(size int, fails error, want bool) {
		t.Helper()
		s.groups.fails = fails
		if err := s.put(plain, "key", string(make([]byte, size))); (err != nil) != (fails != nil) {
			t.Error(err)
		}
		if got := s.Unwritten() > 0; got != want {
			t.Errorf("a group is unwritten: %v; want %v", got, want)
		}
	}
	full := errors.New("full")
	put(10, nil, false)
	put(100, full, true)
	put(50, full, true)
	put(90, nil, true) // space for 100 bytes is not proven
	put(100, nil, false)
	put(100, fmt.Errorf("%w: 2 GB", ErrTooLarge), false)
	s.close()
}
