package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// calling returns an orchestrator "O" that returns the result of activity "A", which is fn.
func calling(fn activity) functions {
	return functions{
		activities: map[string]activity{"A": fn},
		orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, input *string) (*string, error) {
			return callActivity(x, "A", "in")
		}},
	}
}

func TestActivity_FailuresReachTheOrchestratorWithTheirText(t *testing.T) {
	for _, test := range []struct {
		name            string
		fn              activity
		errorType, text string
		stack           string
	}{
		{
			name: "an error", errorType: "error", text: "out of stock",
			fn: func(context.Context, *string) (*string, error) { return nil, errors.New("out of stock") },
		},
		{
			name: "a wrapped error", errorType: "error", text: "reserve: out of stock",
			fn: func(context.Context, *string) (*string, error) {
				return nil, fmt.Errorf("reserve: %w", errors.New("out of stock"))
			},
		},
		{
			name: "a panic", errorType: "panic", text: "panic: on fire", stack: "TestActivity_FailuresReach",
			fn: func(context.Context, *string) (*string, error) { panic("on fire") },
		},
		{
			name: "a runtime error", errorType: "runtime.boundsError", text: "index out of range", stack: "TestActivity_FailuresReach",
			fn: func(_ context.Context, p *string) (*string, error) {
				return nil, errors.New(string([]byte(*p)[len(*p)]))
			},
		},
		{
			name: "a panic with an error that cannot be unwrapped", errorType: "*fs.PathError", text: "panic: ", stack: "TestActivity_FailuresReach",
			fn: func(context.Context, *string) (*string, error) {
				var none *fs.PathError
				panic(error(none))
			},
		},
		{
			name: "an error that cannot be unwrapped", errorType: "*fs.PathError", text: "whose Error method panicked",
			fn: func(context.Context, *string) (*string, error) {
				var none *fs.PathError
				return nil, none
			},
		},
		{
			name: "a goroutine that ends", errorType: "error", text: "ended its goroutine with runtime.Goexit",
			fn: func(context.Context, *string) (*string, error) { runtime.Goexit(); return nil, nil },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.work(calling(test.fn))
				b.start("i", "O", nil)
				if s := b.end("i"); s.Status != history.Failed || !strings.Contains(*s.Output, test.text) {
					t.Errorf("instance is %v with %q, want Failed with %q in it", s.Status, *s.Output, test.text)
				}
				for _, e := range b.events("i") {
					e, ok := e.(*history.TaskFailed)
					if !ok {
						continue
					}
					if e.Failure.ErrorType != test.errorType || !strings.Contains(*e.Reason, test.text) || *e.Reason != e.Failure.ErrorMessage {
						t.Errorf("failure is %+v with reason %q, want type %s and %q", e.Failure, *e.Reason, test.errorType, test.text)
					}
					if test.stack != "" && (e.Failure.StackTrace == nil || !strings.Contains(*e.Failure.StackTrace, test.stack)) {
						t.Errorf("stack is %v, want %s in it", e.Failure.StackTrace, test.stack)
					}
					return
				}
				t.Errorf("the history has no failure: %s", b.types("i"))
			})
		})
	}
}

func TestActivity_CanReturnNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(calling(func(context.Context, *string) (*string, error) { return nil, nil }))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "<nil>")
	})
}

func TestActivity_ContextHasItsActivityInfo(t *testing.T) {
	bubble(t, func(b *bench) {
		infos := make(chan dispatch.ActivityInfo, 2)
		b.work(calling(func(ctx context.Context, _ *string) (*string, error) {
			info, ok := dispatch.ActivityInfoFrom(ctx)
			if !ok {
				return nil, errors.New("no info")
			}
			infos <- info
			return nil, nil
		}))
		b.Inject(memhub.CompletionLost, memhub.Times(1))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "<nil>")
		want := dispatch.ActivityInfo{
			Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "execution of i"}, Name: "A", Attempt: 1,
		}
		if diff := cmp.Diff(want, <-infos); diff != "" {
			t.Errorf("first run (-want +got):\n%s", diff)
		}
		want.Attempt = 2
		if diff := cmp.Diff(want, <-infos); diff != "" {
			t.Errorf("second run (-want +got):\n%s", diff)
		}
		if n := b.log.count("activity runs again"); n != 1 {
			t.Errorf("the log has %d entries for the second run, want 1:\n%s", n, b.log)
		}
		if _, ok := dispatch.ActivityInfoFrom(b.Context()); ok {
			t.Error("a context without an activity has activity info")
		}
	})
}

func TestActivity_ContextEndsWithTheActivity(t *testing.T) {
	bubble(t, func(b *bench) {
		contexts := make(chan context.Context, 1)
		b.work(calling(func(ctx context.Context, _ *string) (*string, error) {
			contexts <- ctx
			return nil, ctx.Err()
		}))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "<nil>")
		if ctx := <-contexts; ctx.Err() == nil {
			t.Error("the context did not end with the activity")
		}
	})
}

func TestActivity_AnUnknownActivityWaitsForAWorkerThatHasIt(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := calling(sayHello)
		stop := b.work(functions{orchestrators: fns.orchestrators})
		b.start("i", "O", nil)
		time.Sleep(time.Hour)
		if s := b.state("i"); s.Status != history.Running {
			t.Errorf("instance is %v, want Running", s.Status)
		}
		if n := b.log.count("name=A"); n < 5 || n > 20 {
			t.Errorf("its name was logged %d times in an hour, want a few:\n%s", n, b.log)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, `"Hello in!"`)
	})
}

func TestActivities_RunUpToTheLimitAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var now, most atomic.Int32
		fns := functions{
			activities: map[string]activity{"A": func(context.Context, *string) (*string, error) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second)
				now.Add(-1)
				return nil, nil
			}},
			orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, _ *string) (*string, error) {
				var tasks []*replay.Future
				for range 20 {
					tasks = append(tasks, begin(x, "A", nil))
				}
				for _, f := range tasks {
					f.Await()
				}
				return nil, nil
			}},
		}
		b.work(fns, func(c *dispatch.Config) { c.MaxConcurrentActivities = 7 })
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "<nil>")
		if got := most.Load(); got != 7 {
			t.Errorf("%d activities ran at once, want 7", got)
		}
	})
}

func TestActivity_ResultIsSentAgainWhenSendingFails(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		b.Inject(memhub.CompleteFails, memhub.Times(3))
		b.work(calling(func(_ context.Context, input *string) (*string, error) { runs++; return input, nil }))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, `"in"`)
		if runs != 1 {
			t.Errorf("the activity ran %d times, want 1", runs)
		}
		if n := b.log.count("cannot send the results of activities; trying again"); n != 1 {
			t.Errorf("the failure was logged %d times, want once:\n%s", n, b.log)
		}
		if n := b.log.count("can send the results of activities again"); n != 1 {
			t.Errorf("the recovery was logged %d times, want once:\n%s", n, b.log)
		}
	})
}

func TestActivity_RunsAgainWhenItsResultCannotBeSent(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		b.Inject(memhub.CompleteFails, memhub.Times(5))
		b.work(calling(func(_ context.Context, input *string) (*string, error) { runs++; return input, nil }))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, `"in"`)
		if runs != 2 {
			t.Errorf("the activity ran %d times, want 2", runs)
		}
	})
}

func TestActivity_AResultThatIsSentTwiceTakesEffectOnce(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			b.Inject(memhub.CompleteReplyLost, memhub.Times(2))
			b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
				if _, err := callActivity(x, "Hello", "x"); err != nil {
					return nil, err
				}
				sleepFor(x, time.Minute)
				return callActivity(x, "Hello", "y")
			}), change)
			b.start("i", "O", nil)
			b.wantOutput("i", history.Completed, `"Hello y!"`)
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := b.Pending(); n != 0 {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

// A slowStore delivers activities, and blocks the storing of their results until released is
// closed.
type slowStore struct {
	provider.Worker
	left     atomic.Int32
	released chan struct{}
}

func (s *slowStore) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (s *slowStore) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *slowStore) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	if s.left.Add(-1) < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &provider.ActivityWorkItem{Task: &history.TaskScheduled{Name: "A"}, Attempt: 1, Lock: s}, nil
}

func (s *slowStore) Complete(context.Context, history.Event) error {
	<-s.released
	return nil
}

func (s *slowStore) Abandon(context.Context, error) error { return nil }

// Slots are for user code. An activity whose result is being stored holds no slot, unless the result is large
// or maxResults others are being stored.
func TestActivity_HoldsNoSlotWhileItsResultIsStored(t *testing.T) {
	for name, test := range map[string]struct{ activities, size, ran int }{
		"small":    {20, 100, 20},
		"large":    {20, 1 << 20, 2},
		"too many": {2000, 100, 1002},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				s := &slowStore{released: make(chan struct{})}
				s.left.Store(int32(test.activities))
				var ran atomic.Int32
				fns := functions{activities: map[string]activity{"A": func(context.Context, *string) (*string, error) {
					ran.Add(1)
					return new(strings.Repeat("a", test.size)), nil
				}}}
				_, stop := b.workOn(s, fns, func(c *dispatch.Config) { c.MaxConcurrentActivities = 2 })
				time.Sleep(time.Second)
				if got := int(ran.Load()); got != test.ran {
					t.Errorf("%d activities ran while no result was stored, want %d", got, test.ran)
				}
				close(s.released)
				time.Sleep(time.Second)
				if got := int(ran.Load()); got != test.activities {
					t.Errorf("%d activities ran in the end, want %d", got, test.activities)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
