package durable_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

const (
	number = durable.Event[int]("Number")
	stop   = durable.Event[durable.Void]("Stop")
)

func TestEvent_NamesAreCaseInsensitive(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) { return number.Wait(ctx).Await() })
	s.Start(nil)
	wantActions(t, s.Episode(raised("numbers", "1")))
	s.Episode(raised("nUMBER", "7"))
	wantOutput(t, s, "7")
}

func TestEvent_CompletesTheNewestOfSeveralWaits(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		return durable.AwaitAll(ctx, number.Wait(ctx), number.Wait(ctx), number.Wait(ctx))
	})
	s.Start(nil)
	s.Episode(raised("Number", "1"))
	s.Episode(raised("Number", "2"), raised("Number", "3"))
	wantOutput(t, s, "[3,2,1]")
}

func TestEvent_IsBufferedAndReadOldestFirst(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		if _, err := durable.CallActivity(ctx, count, "").Await(); err != nil {
			return nil, err
		}
		var got []int
		for range 3 {
			n, err := number.Wait(ctx).Await()
			if err != nil {
				return nil, err
			}
			got = append(got, n)
		}
		return got, nil
	})
	s.Start(nil, raised("Number", "1"))
	s.Episode(raised("Number", "2"))
	s.Episode(done(0, "0"))
	s.Episode(raised("Number", "3"))
	wantOutput(t, s, "[1,2,3]")
}

func TestEvent_MayArriveBeforeTheStart(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) { return number.Wait(ctx).Await() })
	s.Episode(raised("Number", "4"), &history.ExecutionStarted{Name: "Main"})
	wantOutput(t, s, "4")
}

func TestEvent_PayloadCanBeAbsent(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		n, err := number.Wait(ctx).Await()
		if err != nil {
			return "", err
		}
		_, err = stop.Wait(ctx).Await() // accepts any payload
		return fmt.Sprint(n), err
	})
	s.Start(nil)
	s.Episode(raised("Number", ""), raised("Stop", `{"who":"cares"}`))
	wantOutput(t, s, `"0"`)
}

func TestEvent_DecodeErrorNamesEventAndType(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) { return number.Wait(ctx).Await() })
	s.Start(nil)
	s.Episode(raised("Number", `"x"`))
	wantFailure(t, s, "decode result of event Number: as int: json: cannot unmarshal string")
}

func TestAwaitTimeout_ReturnsTheResultInTime(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		n, err := number.Wait(ctx).AwaitTimeout(time.Hour)
		if err != nil {
			return 0, err
		}
		ctx.Sleep(time.Minute)
		return n, nil
	})
	wantActions(t, s.Start(nil), "0 timer 1h0m0s")
	wantActions(t, s.Episode(raised("Number", "5")), "1 timer 1m0s")
	wantActions(t, s.Episode(fired(0))) // the remaining timer
	s.Episode(fired(1))
	wantOutput(t, s, "5")
}

func TestAwaitTimeout_CreatesNoTimerForACompleteTask(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		if _, err := durable.CallActivity(ctx, count, "").Await(); err != nil {
			return 0, err
		}
		return number.Wait(ctx).AwaitTimeout(time.Hour)
	})
	s.Start(nil, raised("Number", "5"))
	wantActions(t, s.Episode(done(0, "1")), "1 Completed 5")
}

func TestAwaitTimeout_ReturnsErrTimeout(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := number.Wait(ctx).AwaitTimeout(72 * time.Hour)
		return err.Error(), map[bool]error{true: nil, false: err}[errors.Is(err, durable.ErrTimeout)]
	})
	s.Start(nil)
	s.Episode(fired(0))
	wantOutput(t, s, `"event Number is not complete after 72h0m0s: timed out"`)
}

func TestAwaitTimeout_CanBeRepeatedOnAnActivity(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		task := durable.CallActivity(ctx, count, "")
		for {
			n, err := task.AwaitTimeout(time.Minute)
			if !errors.Is(err, durable.ErrTimeout) {
				return n, err
			}
		}
	})
	wantActions(t, s.Start(nil), `0 task Count [""]`, "1 timer 1m0s")
	wantActions(t, s.Episode(fired(1)), "2 timer 1m0s")
	s.Episode(done(0, "3"))
	wantOutput(t, s, "3")
}

// A wait that timed out or lost a race must not consume an event for which another task
// waits now or later.
func TestEvent_IsNotConsumedByAnAbandonedWait(t *testing.T) {
	t.Parallel()
	losers := map[string]func(ctx *durable.Context) error{
		"AwaitTimeout": func(ctx *durable.Context) error {
			_, err := number.Wait(ctx).AwaitTimeout(0)
			if !errors.Is(err, durable.ErrTimeout) {
				return fmt.Errorf("no timeout: %w", err)
			}
			return nil
		},
		"AwaitAny": func(ctx *durable.Context) error {
			durable.AwaitAny(ctx, number.Wait(ctx), ctx.Timer(0))
			return nil
		},
		"AwaitAny with a complete task": func(ctx *durable.Context) error {
			timer := ctx.Timer(0)
			if _, err := timer.Await(); err != nil {
				return err
			}
			durable.AwaitAny(ctx, number.Wait(ctx), timer)
			return nil
		},
		"a loop that breaks": func(ctx *durable.Context) error {
			timer := durable.Go(ctx, func() (int, error) { ctx.Sleep(0); return 0, nil })
			for range durable.AsCompleted(ctx, number.Wait(ctx), timer) {
				break
			}
			return nil
		},
	}
	for name, lose := range losers {
		t.Run(name+", another task waits", func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				older := number.Wait(ctx)
				if err := lose(ctx); err != nil {
					return 0, err
				}
				return older.Await()
			})
			s.Start(nil)
			s.Episode(fired(0))
			s.Episode(raised("Number", "8"))
			wantOutput(t, s, "8")
		})
		t.Run(name+", a task waits later", func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				if err := lose(ctx); err != nil {
					return 0, err
				}
				if _, err := durable.CallActivity(ctx, count, "").Await(); err != nil {
					return 0, err
				}
				return number.Wait(ctx).Await()
			})
			s.Start(nil)
			s.Episode(fired(0))
			s.Episode(raised("Number", "8")) // no task waits
			s.Episode(done(1, "1"))
			wantOutput(t, s, "8")
		})
	}
}

func TestAwaitAny_OtherTaskWaitsAgainWhenItIsAwaited(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		approval := number.Wait(ctx)
		for tick := 0; ; tick++ {
			if durable.AwaitAny(ctx, approval, ctx.Timer(time.Minute)) == durable.Awaitable(approval) {
				n, err := approval.Await()
				return fmt.Sprint(n, " after ", tick, " ticks"), err
			}
			if _, err := durable.CallActivity(ctx, count, "remind").Await(); err != nil {
				return "", err
			}
		}
	})
	s.Start(nil)                     // timer 0
	s.Episode(fired(0))              // activity 1
	s.Episode(done(1, "1"))          // timer 2
	s.Episode(fired(2))              // activity 3
	s.Episode(raised("Number", "8")) // while the reminder is sent
	wantActions(t, s.Episode(done(3, "1")), "4 timer 1m0s", `5 Completed "8 after 2 ticks"`)
}

func TestAwaitAny_KeepsTheWaitOfATaskThatAnotherBranchAwaits(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		shared := number.Wait(ctx)
		durable.Go(ctx, func() (int, error) {
			durable.AwaitAny(ctx, shared, ctx.Timer(0))
			// This wait starts later. It would be the newest one if shared were not
			// waiting.
			ctx.Sleep(time.Hour)
			return 0, nil
		})
		return shared.Await()
	})
	s.Start(nil)
	s.Episode(fired(0))
	s.Episode(raised("Number", "8"))
	wantOutput(t, s, "8")
}
