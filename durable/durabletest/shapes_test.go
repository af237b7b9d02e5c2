package durabletest_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler"
)

// balance is the state of an entity.
type balance struct{ Cents int }

func (b *balance) add(_ *durable.EntityContext, cents int) (int, error) {
	if b.Cents+cents < 0 {
		return 0, errors.New("overdrawn")
	}
	b.Cents += cents
	return b.Cents, nil
}

const balanceOf = durable.EntityKey[balance]("a")

// shapes are orchestrators that each do one kind of thing, and more after it, so
// that what was restored wrongly shows.
func shapes() map[string]func(*durable.Context, int) (string, error) {
	steps := func(ctx *durable.Context) (string, error) {
		for _, city := range []string{"Oslo", "Rome"} {
			if _, err := durable.CallActivity(ctx, quote, city).Await(); err != nil {
				return "", err
			}
		}
		return durable.CallActivity(ctx, forecast, "Rome").Await()
	}
	return map[string]func(*durable.Context, int) (string, error){
		"Sequence": func(ctx *durable.Context, _ int) (string, error) { return steps(ctx) },
		"FanOut": func(ctx *durable.Context, _ int) (string, error) {
			if _, err := durable.Map(ctx, quote, []string{"a", "b", "c", "d"}, 2); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"Call": func(ctx *durable.Context, _ int) (string, error) {
			for range 2 {
				if _, err := durable.CallEntity(ctx, balanceOf, (*balance).add, 5).Await(); err != nil {
					return "", err
				}
			}
			return steps(ctx)
		},
		"CallsAtOnce": func(ctx *durable.Context, _ int) (string, error) {
			same := durable.CallEntity(ctx, balanceOf, (*balance).add, 5)
			again := durable.CallEntity(ctx, balanceOf, (*balance).add, 5)
			other := durable.CallEntity(ctx, durable.EntityKey[balance]("b"), (*balance).add, 5)
			durable.SignalEntity(ctx, balanceOf, (*balance).add, 1)
			if _, err := durable.AwaitAll(ctx, same, again, other); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"FailedCall": func(ctx *durable.Context, _ int) (string, error) {
			if _, err := durable.CallEntity(ctx, balanceOf, (*balance).add, -1000000).Await(); err == nil {
				return "", errors.New("it did not fail")
			}
			return steps(ctx)
		},
		"Locks": func(ctx *durable.Context, _ int) (string, error) {
			unlock := durable.LockEntities(ctx, durable.EntityKey[balance]("b"), balanceOf)
			if _, err := durable.CallEntity(ctx, balanceOf, (*balance).add, 5).Await(); err != nil {
				return "", err
			}
			if _, err := durable.CallActivity(ctx, quote, "Oslo").Await(); err != nil {
				return "", err
			}
			unlock()
			return steps(ctx)
		},
		"LocksToTheEnd": func(ctx *durable.Context, _ int) (string, error) {
			durable.LockEntities(ctx, balanceOf)
			return steps(ctx)
		},
		"TimerAndCall": func(ctx *durable.Context, _ int) (string, error) {
			timer := ctx.Timer(time.Hour)
			call := durable.CallEntity(ctx, balanceOf, (*balance).add, 5)
			if durable.AwaitAny(ctx, timer, call) != call {
				return "", errors.New("late")
			}
			if err := ctx.Sleep(time.Millisecond); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"Branches": func(ctx *durable.Context, _ int) (string, error) {
			a := durable.Go(ctx, func() (string, error) { return steps(ctx) })
			b := durable.Go(ctx, func() (string, error) {
				_, err := durable.CallEntity(ctx, balanceOf, (*balance).add, 5).Await()
				return "", err
			})
			_, err := durable.AwaitAll(ctx, a, b)
			return "", err
		},
		"Child": func(ctx *durable.Context, _ int) (string, error) {
			if _, err := durable.CallSubOrchestrator(ctx, pack, "Oslo").Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"Retry": func(ctx *durable.Context, _ int) (string, error) {
			_, err := durable.CallActivity(ctx, refuse, "x", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Millisecond}).Await()
			if err == nil {
				return "", errors.New("it did not fail")
			}
			return steps(ctx)
		},
		"Event": func(ctx *durable.Context, _ int) (string, error) {
			if err := leave.Send(ctx, "somebody", 1); err != nil {
				return "", err
			}
			if _, err := leave.Wait(ctx).Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"Failure": func(ctx *durable.Context, _ int) (string, error) {
			return durable.CallActivity(ctx, refuse, "x").Await()
		},
	}
}

// origins are the members by which only we know requests to entities again.
var origins = regexp.MustCompile(`,\\"origin\\":\\"[^\\]*\\"`)

func refuse(context.Context, string) (string, error) { return "", errors.New("refused") }

// What runs on a hub, in whatever shape, is what the same code does, whichever way
// its history was had.
func TestReplay_TakesTheHistoryOfEveryShapeInEachForm(t *testing.T) {
	all := append(journeys(), durable.Activity("Refuse", refuse), durable.Entity("Balance", durable.Op("add", (*balance).add)))
	for name, f := range shapes() {
		all = append(all, durable.Orchestrator(name, f))
	}
	quiet := slog.New(slog.DiscardHandler)
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	server := handler.New(handler.App{Functions: all}, handler.Config{Address: "127.0.0.1:0", Provider: hub, Logger: quiet})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := durable.NewClient(hub, durable.NewRegistry(all...))
	for name := range shapes() {
		id, err := c.StartByName(ctx, name, []byte("1"), durable.InstanceID(name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "Event" {
			if err := leave.Raise(ctx, c, id, 7); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range shapes() {
		id := durable.InstanceID(name)
		_, err := durable.InstanceOf[string](c, id).Wait(ctx)
		if (err != nil) != (name == "Failure") {
			t.Fatal(err)
		}
		events, err := c.History(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		shown := string(get(t, server, "/durabletask/instances/"+name+"?showHistory=true&showHistoryOutput=true"))
		for form, replay := range map[string]func(durabletest.TB){
			"events":         func(tb durabletest.TB) { durabletest.ReplayEvents(tb, all, events) },
			"management API": func(tb durabletest.TB) { durabletest.Replay(tb, all, file(t, shown)) },
			"management API, without what .NET does not write": func(tb durabletest.TB) {
				durabletest.Replay(tb, all, file(t, origins.ReplaceAllString(shown, "")))
			},
		} {
			t.Run(name+" "+form, func(t *testing.T) { replay(t) })
		}
	}
}
