package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// scriptedLast is the number of layers that writeScript writes.
const scriptedLast = 12

// writeScript writes layers until a write fails, and waits for the merges after each.
func (s *stage) writeScript() {
	for range scriptedLast {
		if s.write(30, false) != nil {
			return
		}
		s.settle()
		time.Sleep(5 * time.Minute) // unneeded files are deleted
	}
}

// reopen opens the base from the last committed manifest, as another process does after a crash. It
// deletes the files that the manifest does not name.
func (s *stage) reopen() {
	s.Helper()
	_ = s.Close() // makes no calls
	s.files.follow(nil)
	s.open()
	for _, name := range s.files.names() {
		if !slices.Contains(s.Names(), name) {
			if err := s.files.Remove(s.Context(), name); err != nil {
				s.Fatal(err)
			}
		}
	}
}

func TestBase_IsConsistentAfterACrashAtAnyCall(t *testing.T) {
	t.Parallel()
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		s.files.follow(func(string) fate { calls++; return succeeds })
		s.writeScript()
		_ = s.Close()
	})
	if calls < 50 {
		t.Fatalf("the script makes %d calls; want more, with merges", calls)
	}
	for _, how := range []fate{failsBefore, failsAfter, failsHalf} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			for at := 1; at <= calls; at++ {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, 1)
					n := 0
					s.files.follow(func(string) fate {
						switch n++; {
						case n < at:
							return succeeds
						case n == at:
							return how
						}
						return failsBefore // the process is dead
					})
					s.writeScript()
					wrote := s.last
					s.reopen()
					if s.last != wrote && (s.last != wrote+1 || how == failsBefore) {
						t.Fatalf("crash at call %d: the base ends with group %d; %d groups were written", at, s.last, wrote)
					}
					s.compare()
					for range 3 {
						if err := s.write(30, false); err != nil {
							t.Fatalf("write after a crash at call %d: %v", at, err)
						}
						s.settle()
					}
					s.compare()
					_ = s.Close()
				})
			}
		})
	}
}

// A failed write is repeated, as the store does. After an uncertain write the base is opened again.
func TestBase_KeepsWrittenRecordsUnderFaults(t *testing.T) {
	t.Parallel()
	failures, uncertain := 0, 0
	for seed := range uint64(testshare.Amount(12, 4)) {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, seed)
			fault := func(string) fate {
				if s.random.IntN(15) > 0 {
					return succeeds
				}
				return []fate{failsBefore, failsAfter, failsHalf}[s.random.IntN(3)]
			}
			for range 40 {
				s.files.follow(nil)
				s.settle()
				l := s.layer(s.random.IntN(40))
				s.files.follow(fault)
				for {
					err := s.Write(l, false)
					if err == nil {
						s.last++
						break
					}
					failures++
					if isUncertain(err) {
						uncertain++
						if again := s.Write(l, false); !isUncertain(again) {
							t.Fatalf("seed %d: write after an uncertain commit: %v; want the same error", seed, again)
						}
						last := s.last
						if s.reopen(); s.last != last {
							break // the write had succeeded
						}
						s.files.follow(fault)
					}
				}
				s.settle()
				s.files.follow(nil)
				s.compare()
				if isUncertain(s.writeError()) { // after a merge
					s.reopen()
					s.compare()
				}
				time.Sleep(5 * time.Minute)
			}
			_ = s.Close()
		})
	}
	if failures < testshare.Amount(30, 10) || uncertain < testshare.Amount(5, 3) {
		t.Errorf("got %d failures, %d of them uncertain; want more", failures, uncertain)
	}
}

func (b *Base) writeError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writeErr
}

func TestBase_CanBeReadDuringWritesAndMerges(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	var mu sync.Mutex // protects s.truth
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for seen := 0; ; seen++ {
				err := s.View(func(r logstore.Reader) error {
					mu.Lock()
					want := s.truth[r.(*reader).v.last]
					mu.Unlock()
					return (&stage{TB: t, random: s.random}).hasAll(r, want)
				})
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 60 {
		mu.Lock()
		l := s.layer(40)
		mu.Unlock()
		if err := s.Write(l, false); err != nil {
			t.Error(err)
		}
		s.last++
	}
	close(done)
	readers.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.View(func(logstore.Reader) error { return nil }); !errors.Is(err, logstore.ErrClosed) {
		t.Errorf("View after Close: %v", err)
	}
}

// hasAll returns an error if a scan does not return exactly the wanted records.
func (s *stage) hasAll(r logstore.Reader, want contents) error {
	for id := range testTables {
		n := 0
		err := r.Scan(logstore.Table(id), nil, func(key []byte, value func() ([]byte, error)) (bool, error) {
			n++
			v, err := value()
			if w, ok := want[id][string(key)]; err == nil && (!ok || w != string(v)) {
				err = fmt.Errorf("scan has %q = %q; want %q", key, v, w)
			}
			return false, err
		})
		if err != nil || n != len(want[id]) {
			return fmt.Errorf("scan has %d records; want %d; %w", n, len(want[id]), err)
		}
	}
	return nil
}

func TestBase_AViewOutlivesAMerge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 5)
		defer func() { _ = s.Close() }()
		for range 3 {
			if err := s.write(50, false); err != nil {
				t.Fatal(err)
			}
		}
		want, was := s.truth[s.last], s.Names()
		other, err := Open(t.Context(), s.config(), s.manifest) // in another process
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		err = s.View(func(r logstore.Reader) error {
			for range 20 {
				if err := s.write(50, false); err != nil {
					return err
				}
				s.settle()
			}
			if now := s.Names(); slices.ContainsFunc(now, func(name string) bool { return slices.Contains(was, name) }) {
				return fmt.Errorf("%q were not merged: %q", was, now)
			}
			time.Sleep(time.Hour)
			return s.differs(r, want)
		})
		if err != nil {
			t.Fatal(err)
		}
		s.compare()
		time.Sleep(time.Hour)
		if there := s.files.names(); slices.ContainsFunc(there, func(name string) bool { return slices.Contains(was, name) }) {
			t.Errorf("files before the merge %q, files now %q", was, there)
		}
		read := func() error {
			return other.View(func(r logstore.Reader) error { return s.differs(r, s.truth[other.Last()]) })
		}
		if err := read(); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "base-") {
			t.Errorf("View with a manifest of deleted files: %v; want ErrGone and a file name", err)
		}
		if err := errors.Join(other.Rebase(s.Manifest()), read()); err != nil {
			t.Errorf("after Rebase: %v", err)
		}
	})
}

func TestBase_CommitsNothingAfterTheClosingWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		if err := s.cfg.Cache.short.Acquire(t.Context(), shortMerges); err != nil { // delays merges
			t.Fatal(err)
		}
		for range 10 {
			if err := s.write(30, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.write(30, true); err != nil {
			t.Fatal(err)
		}
		s.cfg.Cache.short.Release(shortMerges)
		calls := s.files.count("commit")
		time.Sleep(time.Hour)
		if got := s.files.count("commit"); got != calls {
			t.Errorf("%d commits after the last write", got-calls)
		}
		if err := s.Write(logstore.NewLayer(testTables, s.last), true); err != nil || s.files.count("commit") != calls {
			t.Errorf("write of an empty layer: %v, %d commits", err, s.files.count("commit")-calls)
		}
		s.compare()
		_ = s.Close()
	})
}

func TestBase_WritesWaitForMergesWhenThereAreTooManyRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		defer func() { _ = s.Close() }()
		if err := s.cfg.Cache.short.Acquire(t.Context(), shortMerges); err != nil {
			t.Fatal(err)
		}
		written := make(chan error)
		go func() {
			for range maxRuns + 1 {
				written <- s.write(20, false)
			}
		}()
		for range maxRuns {
			if err := <-written; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		select {
		case err := <-written:
			t.Errorf("write with %d runs returned %v; want it to wait", maxRuns, err)
		default:
		}
		s.cfg.Cache.short.Release(shortMerges)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		s.compare()
	})
}

func TestBase_ContinuesWhenMergesFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		defer func() { _ = s.Close() }()
		s.files.follow(func(op string) fate {
			if op == "read" {
				return failsBefore
			}
			return succeeds
		})
		for range maxRuns + 5 {
			if err := s.write(20, false); err != nil {
				t.Fatal(err)
			}
		}
		s.settle()
		s.files.follow(nil)
		s.compare()
		if err := s.write(20, false); err != nil {
			t.Fatal(err)
		}
		s.settle()
		if n := len(s.version().runs); n > 10 {
			t.Errorf("%d runs after merges succeed again", n)
		}
		s.compare()
	})
}

func TestBase_KeepsFilesForReadersInOtherProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 5)
		defer func() { _ = s.Close() }()
		if err := s.write(50, false); err != nil {
			t.Fatal(err)
		}
		cfg := s.config()
		cfg.Cache = NewCache(0, 0)
		other, err := Open(t.Context(), cfg, s.manifest)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		for range 10 {
			if err := s.write(50, false); err != nil {
				t.Fatal(err)
			}
			s.settle()
		}
		read := func() error { return other.View(func(r logstore.Reader) error { return s.differs(r, s.truth[1]) }) }
		time.Sleep(time.Minute)
		if err := read(); err != nil {
			t.Errorf("View after a minute: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := read(); !errors.Is(err, ErrGone) {
			t.Errorf("View after 3 minutes: %v; want ErrGone", err)
		}
	})
}

func TestOpen_IgnoresTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	if s.Base, err = Open(ctx, s.config(), nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 10 {
		if err := s.write(50, false); err != nil {
			t.Fatal(err)
		}
	}
	s.settle()
	if n := len(s.version().runs); n > 5 {
		t.Errorf("got %d runs; want merged runs", n)
	}
	s.compare()
	_ = s.Close()
}

func TestBase_DeletesTheFilesOfAFailedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		defer func() { _ = s.Close() }()
		for _, how := range []fate{failsBefore, failsAfter, failsHalf} {
			for at := 1; ; at++ {
				creates := 0
				s.files.follow(func(op string) fate {
					if op == "commit" {
						return failsBefore
					}
					if op == "create" {
						creates++
					}
					if op == "create" && creates == at {
						return how
					}
					return succeeds
				})
				if err := s.write(200, false); err == nil {
					t.Fatal("the write succeeds")
				}
				time.Sleep(time.Second)
				if names := s.files.names(); len(names) > 0 {
					t.Fatalf("create %d of %d %s: files %q exist", at, creates, how, names)
				}
				if creates < at {
					break
				}
			}
		}
	})
}

func TestBase_ShortMergesDoNotWaitForLongOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		large := &version{}
		for n := range 4 {
			f := &file{name: fmt.Sprint("large ", n), size: longMerge, tail: 10, first: []byte{0}, last: []byte{9}}
			large.runs = append(large.runs, &run{files: []*file{f}})
		}
		s.manifest = large.encode()
		s.open()
		defer func() { _ = s.Close() }()
		if err := s.cfg.Cache.long.Acquire(t.Context(), longMerges); err != nil { // taken by merges of other bases
			t.Fatal(err)
		}
		for range 20 {
			if err := s.write(50, false); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if runs := s.version().runs; len(runs) > 10 || runs[len(runs)-1].files[0].name != "large 3" {
			t.Errorf("%d runs", len(runs))
		}
	})
}

// Unneeded must not return files that a merge has just replaced: a view may read them.
func TestUnneeded_ReturnsFilesThatFormerOwnersLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		for range 3 {
			if err := s.write(50, false); err != nil {
				t.Fatal(err)
			}
			s.settle()
		}
		_ = s.Close()
		s.files.files["base-left"] = nil
		s.open()
		defer func() { _ = s.Close() }()
		left := slices.DeleteFunc(s.files.names(), func(name string) bool { return slices.Contains(s.Names(), name) })
		for range 20 {
			if err := s.write(50, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := s.Unneeded(s.files.names()); !slices.Equal(got, left) {
				t.Fatalf("got %q, want %q", got, left)
			}
		}
		if n := len(s.files.names()); n < 2*len(s.Names()) {
			t.Errorf("got %d files; want more that wait for their deletion", n)
		}
	})
}

// CancelWork makes a running write fail with ErrClosed. A later closing write succeeds.
func TestEndWork_CancelsAWrite(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if err := s.write(30, false); err != nil {
		t.Fatal(err)
	}
	s.files.follow(func(op string) fate {
		if op == "create" {
			go s.CancelWork()
			<-s.working.Done()
		}
		return succeeds
	})
	if err := s.write(30, false); !errors.Is(err, logstore.ErrClosed) {
		t.Errorf("Write during CancelWork: %v, want %v", err, logstore.ErrClosed)
	}
	s.compare()
	if err := s.write(30, true); err != nil {
		t.Errorf("closing Write after CancelWork: %v", err)
	}
	s.compare()
}
