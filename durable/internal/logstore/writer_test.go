package logstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

func TestWriter_AFailedOperationDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	broken, refused := errors.New("broken"), errors.New("refused")
	started, busy := make(chan struct{}), make(chan struct{})
	put := func(key string) func(*Txn) error {
		return func(t *Txn) error {
			t.Put(plain, []byte(key), []byte("value"))
			return nil
		}
	}
	ops := []*Op[*Txn]{
		NewOp(func(*Txn) error { close(started); <-busy; return nil }), // until the other operations are queued
		NewOp(put("one")),
		NewOp(func(t *Txn) error { return errors.Join(put("two")(t), broken) }),
		NewOp(func(*Txn) error { return Refuse(refused) }),
		NewOp(put("three")),
	}
	called, cancel := context.WithCancel(t.Context())
	for _, o := range ops {
		if err := s.w.Submit(o); err != nil {
			t.Fatal(err)
		}
		<-started
	}
	calledOff := NewOp(put("called off"))
	if err := s.w.Submit(calledOff); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.w.Await(called, calledOff); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled operation: %v", err)
	}
	close(busy)
	for i, want := range []error{nil, nil, broken, refused, nil} {
		got := s.w.Await(t.Context(), ops[i])
		if (got == nil) != (want == nil) || (i == 2 || i == 3) && !errors.Is(got, want) {
			t.Errorf("operation %d: got %v, want %v", i, got, want)
		}
	}
	err := s.View(func(v *View) error {
		for key, want := range map[string]bool{"one": true, "two": false, "three": true, "called off": false} {
			if b, err := v.Get(plain, []byte(key)); err != nil || (b != nil) != want {
				t.Errorf("record %s exists: %v, %v; want %v", key, b != nil, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	s.close()
}

// slowLog is a log whose appends take a given time. It counts them.
type slowLog struct {
	memoryLog
	takes   time.Duration
	appends int
}

func (l *slowLog) Append(number uint64, changes Parts) error {
	time.Sleep(l.takes)
	l.appends++
	return l.memoryLog.Append(number, changes)
}

// Callers that submit again soon after an answer all join the next group. They do not split
// into two halves that alternate.
func TestWriter_GathersTheCallersOfThePreviousGroup(t *testing.T) {
	t.Parallel()
	const callers, times, takes = 16, 20, 8 * time.Millisecond
	for _, c := range []struct {
		name      string
		gather    bool
		pause     time.Duration // between an answer and the next operation
		groups    int           // the maximum
		longest   time.Duration // the maximum for all operations of a caller
		wantTurns bool
	}{
		{name: "not asked for", pause: time.Millisecond / 2, groups: 2*times + 2, longest: time.Hour, wantTurns: true},
		{name: "callers that come back soon", gather: true, pause: time.Millisecond / 2, groups: times + 2, longest: (times + 2) * (takes + time.Millisecond)},
		{name: "callers that come back late", gather: true, pause: 3 * time.Millisecond, groups: 2*times + 2, longest: (2*times + 2) * (takes + time.Millisecond)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &slowLog{memoryLog: memoryLog{groups: map[uint64][]byte{}}, takes: takes}
				store := New(&memoryBase{records: [3]map[string][]byte{{}, {}, {}}}, log, NewLayer(testTables, 0), slog.New(slog.DiscardHandler))
				store.Start()
				w := NewWriter(store, WriterConfig[*Txn]{
					Begin: func(t *Txn) *Txn { return t }, Effects: new(sync.Mutex), Failed: func(err error) error { return err }, Gather: c.gather,
				})
				began := time.Now()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						time.Sleep(time.Duration(i) * time.Microsecond)
						for n := range times {
							err := w.Do(t.Context(), func(t *Txn) error { t.Put(plain, fmt.Append(nil, i, n), []byte("value")); return nil })
							if err != nil {
								t.Error(err)
							}
							time.Sleep(c.pause)
						}
					})
				}
				all.Wait()
				took := time.Since(began)
				if log.appends > c.groups || took > c.longest {
					t.Errorf("%d groups in %v; want at most %d in %v", log.appends, took, c.groups, c.longest)
				}
				if c.wantTurns && log.appends < 2*times {
					t.Errorf("only %d groups without Gather: the test does not show its effect", log.appends)
				}
				if err := errors.Join(w.Close(func(*Txn) error { return nil }), store.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A lazy operation is committed when it is due, even if earlier ones were answered.
func TestWriter_CommitsLazyOperationsWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		submitted []time.Duration // when each lazy operation is submitted
		answered  int             // the number of operations, from the first, that are answered 1 ms after their submission
		hurried   time.Duration   // when a non-lazy operation is submitted; 0 for never
		want      []time.Duration // when the unanswered operations are committed
	}{
		"one":                               {[]time.Duration{0}, 0, 0, []time.Duration{3 * ms}},
		"one after another":                 {[]time.Duration{0, 2 * ms, 4 * ms}, 0, 0, []time.Duration{3 * ms, 5 * ms, 7 * ms}},
		"one that another made superfluous": {[]time.Duration{0, 2 * ms}, 1, 0, []time.Duration{5 * ms}},
		"after all before are superfluous":  {[]time.Duration{0, 0, 9 * ms}, 2, 0, []time.Duration{12 * ms}},
		"after one that cannot wait":        {[]time.Duration{0, 1 * ms}, 0, 2 * ms, []time.Duration{3 * ms, 4 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, began := emptyStage(t), time.Now()
				defer s.close()
				var got []time.Duration // used by the writer's goroutine
				var ops []*Op[*Txn]
				var waits sync.WaitGroup
				if test.hurried > 0 {
					waits.Go(func() {
						time.Sleep(test.hurried)
						if err := s.w.Do(t.Context(), func(*Txn) error { return nil }); err != nil {
							t.Error(err)
						}
					})
				}
				for i, at := range test.submitted {
					if i > 0 && i == test.answered {
						time.Sleep(ms)
						for _, o := range ops {
							s.w.Complete(o, nil)
						}
					}
					time.Sleep(time.Until(began.Add(at)))
					o := NewOp(func(*Txn) error {
						got = append(got, time.Since(began))
						return nil
					})
					if err := s.w.SubmitLazy(o); err != nil {
						t.Fatal(err)
					}
					ops = append(ops, o)
				}
				for _, o := range ops {
					if err := s.w.Await(t.Context(), o); err != nil {
						t.Error(err)
					}
				}
				waits.Wait()
				if !slices.Equal(got, test.want) {
					t.Errorf("committed after %v; want %v", got, test.want)
				}
			})
		})
	}
}

// puts returns operations that put records of the given sizes.
func puts(sizes ...int) (ops []*Op[*Txn]) {
	for n, size := range sizes {
		ops = append(ops, NewOp(func(t *Txn) error {
			t.Put(plain, []byte{byte(n)}, make([]byte, size))
			return nil
		}))
	}
	return ops
}

func TestWriter_AGroupEndsWithTheOperationThatMakesItLarge(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.wantErrors(func() { s.Limits = Limits{FlushSize: 1 << 30, WaitSize: 1 << 30} },
		puts(1, maxGroup/2, maxGroup/2, 1, 1), nil, nil, nil, nil, nil)
	var sizes []int
	for number := range uint64(len(s.groups.groups)) {
		sizes = append(sizes, len(s.groups.groups[number+1])/(maxGroup/2))
	}
	if diff := cmp.Diff([]int{2, 0}, sizes); diff != "" { // the operation that blocks changes nothing
		t.Errorf("sizes of groups, in units of half a large one (-want +got):\n%s", diff)
	}
	s.close()
}

func TestWriter_AnOperationThatIsTooLargeFailsAlone(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.groups.most = 100
	s.wantErrors(func() {}, puts(1, 200, 1), nil, ErrTooLarge, nil)
	if len(s.contents()) != 2 {
		t.Errorf("the store has %d records; want those of the small operations", len(s.contents()))
	}
	s.close()
}

func TestWriter_FailsAllOperationsIfTheBaseCannotBeRead(t *testing.T) {
	t.Parallel()
	s, broken := emptyStage(t), errors.New("broken")
	s.wantErrors(func() { s.base.unread = broken }, puts(1, 1), broken, broken)
}
