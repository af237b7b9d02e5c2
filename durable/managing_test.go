package durable_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestSuspend_HoldsEventsUntilTheInstanceIsResumed(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, ""))
		synctest.Wait()
		if err := i.Suspend(t.Context(), "hold"); err != nil {
			t.Fatal(err)
		}
		if s := statusNow(t, c, i.ID); s != history.Suspended {
			t.Errorf("status is %v, want Suspended", s)
		}
		if err := i.RaiseEvent(t.Context(), "signal", []byte(`"go"`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := statusNow(t, c, i.ID); s != history.Suspended {
			t.Errorf("status after the event is %v, want Suspended", s)
		}
		if err := i.Suspend(t.Context(), "again"); err == nil || errors.Is(err, durable.ErrInstanceEnded) {
			t.Errorf("second Suspend: %v, want an error other than ErrInstanceEnded", err)
		}
		if err := i.Resume(t.Context(), "on"); err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "go" {
			t.Errorf("%q, %v; want go", out, err)
		}
	})
}

// The texts are copied from the extension's DurableClient.cs and HttpApiHandler.cs.
func TestInstanceStateError_NamesTheOperationAndTheStatus(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		running := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("r")))
		ended := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", durable.InstanceID("e")))
		unstarted := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("u"), durable.StartAt(time.Now().Add(time.Hour))))
		nobody := durable.InstanceOf[string](c, "nobody")
		_, _ = ended.Wait(t.Context())
		purge := func(ctx context.Context, i *durable.Instance[string]) error {
			_, err := i.Purge(ctx)
			return err
		}
		for _, tt := range []struct {
			i    *durable.Instance[string]
			do   func(ctx context.Context, i *durable.Instance[string]) error
			want durable.InstanceStateError
			text string
		}{
			{
				running, func(ctx context.Context, i *durable.Instance[string]) error { return i.Resume(ctx, "") },
				durable.InstanceStateError{InstanceID: "r", Operation: "resume", Status: history.Running},
				"Cannot resume the orchestration instance r because instance is in the Running state.",
			},
			{
				ended, func(ctx context.Context, i *durable.Instance[string]) error { return i.Suspend(ctx, "") },
				durable.InstanceStateError{InstanceID: "e", Operation: "suspend", Status: history.Failed},
				"Cannot suspend the orchestration instance e because instance is in the Failed state.",
			},
			{
				ended, func(ctx context.Context, i *durable.Instance[string]) error { return i.Terminate(ctx, "") },
				durable.InstanceStateError{InstanceID: "e", Operation: "terminate", Status: history.Failed},
				"Cannot terminate the orchestration instance e because instance is in the Failed state.",
			},
			{
				ended, func(ctx context.Context, i *durable.Instance[string]) error { return i.RaiseEvent(ctx, "E", nil) },
				durable.InstanceStateError{InstanceID: "e", Operation: "raise event E", Status: history.Failed},
				"Cannot raise event E for orchestration instance e because instance is in Failed state",
			},
			{
				running, func(ctx context.Context, i *durable.Instance[string]) error { return i.Rewind(ctx, "") },
				durable.InstanceStateError{InstanceID: "r", Operation: "rewind", Status: history.Running},
				`This orchestration has status Running, but only orchestrations in the "Failed" state can be rewound.`,
			},
			{
				unstarted, func(ctx context.Context, i *durable.Instance[string]) error { return i.Rewind(ctx, "") },
				durable.InstanceStateError{InstanceID: "u", Operation: "rewind", Status: history.Pending},
				`This orchestration has status Pending, but only orchestrations in the "Failed" state can be rewound.`,
			},
			{
				running, purge,
				durable.InstanceStateError{InstanceID: "r", Operation: "purge", Status: history.Running},
				"Only orchestrations in a terminal state can be purged, but the orchestration with instance ID r has status Running",
			},
		} {
			err := tt.do(t.Context(), tt.i)
			state, ok := errors.AsType[*durable.InstanceStateError](err)
			if !ok || *state != tt.want || state.Error() != tt.text {
				t.Errorf("%s: %v, want %s", tt.want.Operation, err, tt.text)
			}
			if got := errors.Is(err, durable.ErrInstanceEnded); got != (tt.i == ended) {
				t.Errorf("%s: errors.Is ErrInstanceEnded is %v", tt.want.Operation, got)
			}
			if err := tt.do(t.Context(), nobody); !errors.Is(err, durable.ErrInstanceNotFound) {
				t.Errorf("%s of an unknown instance: %v, want ErrInstanceNotFound", tt.want.Operation, err)
			}
		}
	})
}

func TestTerminate_RecursivelyEndsAllGenerations(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 3, durable.InstanceID("f")))
		other := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("g")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), "enough", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		for _, id := range []durable.InstanceID{"f", "f+", "f++", "f+++"} {
			if s := statusNow(t, c, id); s != history.Terminated {
				t.Errorf("%s is %v, want Terminated", id, s)
			}
		}
		if s := statusNow(t, c, other.ID); s != history.Running {
			t.Errorf("status of another instance is %v, want Running", s)
		}
		if err := i.Terminate(t.Context(), "more", durable.Recursive); !errors.Is(err, durable.ErrInstanceEnded) {
			t.Errorf("terminate again: %v, want ErrInstanceEnded", err)
		}
	})
}

func TestTerminate_RecursivelyTerminatesChildrenOfAnEndedInstance(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 2, durable.InstanceID("f")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), "alone"); err != nil {
			t.Fatal(err)
		}
		if s := statusNow(t, c, "f+"); s != history.Running {
			t.Errorf("status of the child is %v, want Running", s)
		}
		if err := i.Terminate(t.Context(), "all", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		for _, id := range []durable.InstanceID{"f+", "f++"} {
			if s := statusNow(t, c, id); s != history.Terminated {
				t.Errorf("%s is %v, want Terminated", id, s)
			}
		}
	})
}

func TestTerminate_RecursivelyReturnsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(plant)
		c := durable.NewClient(memhub.New(), p.registry()) // without a worker
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := i.Terminate(ctx, "", durable.Recursive); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want context.DeadlineExceeded", err)
		}
	})
}

func TestRewind_RepeatsOnlyFailedSteps(t *testing.T) {
	for _, tt := range []struct {
		name          string
		start         func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error)
		output        string
		first, second int32 // runs of the fragile activity before and after each rewind
		steady        int32 // runs of the other activity in total
	}{
		{
			"an activity", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.assembles, "motor")
				return i.ID, err
			}, `"frame with motor"`, 1, 1, 1,
		},
		{
			"the last attempt of a retry", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.retries, "motor")
				return i.ID, err
			}, `"motor"`, 3, 1, 0,
		},
		{
			"a failure after a handled failure", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.catches, "motor")
				return i.ID, err
			}, `"motor"`, 2, 1, 1,
		},
		{
			"one of many", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.fansOut, "b")
				return i.ID, err
			}, `["a","b","c"]`, 1, 1, 2,
		},
		{
			"an activity in flight whose result was not used", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.outruns, "motor")
				return i.ID, err
			}, `["motor","slow"]`, 1, 1, 3,
		},
		{
			"failures in children", func(ctx context.Context, p *plant, c *durable.Client) (durable.InstanceID, error) {
				i, err := durable.Start(ctx, c, p.delegates, "motor")
				return i.ID, err
			}, `"frame with motor, motor"`, 4, 2, 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
				id, err := tt.start(t.Context(), p, c)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				if s := statusNow(t, c, id); s != history.Failed || p.attempts.Load() != tt.first {
					t.Fatalf("status is %v after %d runs, want Failed after %d", s, p.attempts.Load(), tt.first)
				}
				for range 2 { // the second rewind follows a repair
					before := p.attempts.Load()
					if err := c.Rewind(t.Context(), id, "try again"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
					if n := p.attempts.Load() - before; n != tt.second {
						t.Errorf("%d runs after the rewind, want %d", n, tt.second)
					}
					if !p.repaired.Load() {
						if s := statusNow(t, c, id); s != history.Failed {
							t.Fatalf("status is %v after a rewind without a repair, want Failed", s)
						}
					}
					p.repaired.Store(true)
				}
				s, err := c.Status(t.Context(), id, durable.Fetch{Output: true})
				if err != nil || s.Status != history.Completed || *s.Output != tt.output {
					t.Errorf("%v with %v, %v; want Completed with %s", s.Status, *s.Output, err, tt.output)
				}
				if n := p.steady.Load(); n != tt.steady {
					t.Errorf("the successful activity ran %d times, want %d", n, tt.steady)
				}
			})
		})
	}
}

func TestRestart_CopiesTheStartOfTheInstance(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", durable.InstanceID("first"),
			durable.Version("1.0"), durable.Tags{"team": "a"}))
		_, _ = i.Wait(t.Context())
		p.repaired.Store(true)

		fresh := must[*durable.Instance[string]](t)(i.Restart(t.Context()))
		if out, err := fresh.Wait(t.Context()); err != nil || out != "frame with motor" || fresh.ID == i.ID {
			t.Errorf("output %q, %v of instance %s", out, err, fresh.ID)
		}
		s := must[*durable.InstanceState](t)(fresh.Status(t.Context(), durable.Fetch{}))
		if s.Version != "1.0" || !maps.Equal(s.Tags, map[string]string{"team": "a"}) {
			t.Errorf("version %q and tags %v", s.Version, s.Tags)
		}
		same := must[*durable.Instance[string]](t)(i.Restart(t.Context(), i.ID, durable.Version("2.0"), durable.Tags{"try": "2"}))
		if out, err := same.Wait(t.Context()); err != nil || out != "frame with motor" || same.ID != i.ID {
			t.Errorf("output %q, %v of instance %s", out, err, same.ID)
		}
		s = must[*durable.InstanceState](t)(same.Status(t.Context(), durable.Fetch{}))
		if s.Version != "2.0" || !maps.Equal(s.Tags, map[string]string{"team": "a", "try": "2"}) || s.Generation != 1 {
			t.Errorf("version %q, tags %v, generation %d", s.Version, s.Tags, s.Generation)
		}

		live := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, ""))
		if _, err := live.Restart(t.Context(), live.ID); err == nil {
			t.Error("Restart replaced a live instance")
		} else if _, ok := errors.AsType[*provider.InstanceExistsError](err); !ok {
			t.Errorf("error is %v, want an InstanceExistsError", err)
		}
		if _, err := c.Restart(t.Context(), "nobody"); !errors.Is(err, durable.ErrInstanceNotFound) {
			t.Errorf("error %v, want ErrInstanceNotFound", err)
		}
	})
}

func TestStartAt_DelaysTheStart(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		p.repaired.Store(true)
		began := time.Now()
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", durable.StartAt(began.Add(30*24*time.Hour))))
		time.Sleep(29 * 24 * time.Hour)
		if s := statusNow(t, c, i.ID); s != history.Pending {
			t.Errorf("status a day before the start is %v, want Pending", s)
		}
		if _, err := i.Wait(t.Context()); err != nil || time.Since(began) < 30*24*time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		now := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "motor", durable.StartAt(began)))
		if s := must[*durable.InstanceState](t)(now.Status(t.Context(), durable.Fetch{})); !s.ScheduledAt.IsZero() {
			t.Errorf("ScheduledAt is %v for a start time in the past, want zero", s.ScheduledAt)
		}
	})
}

// delaying is an entity with operations that choose a later time.
type delaying struct{}

func (*delaying) Start(ctx *durable.EntityContext, at time.Time) (durable.InstanceID, error) {
	return durable.StartFrom(ctx, shipIt, "", durable.StartAt(at))
}

func (*delaying) Signal(ctx *durable.EntityContext, at time.Time) (durable.Void, error) {
	put.SignalFrom(ctx, stock, 1, durable.SignalAt(at))
	return durable.Void{}, nil
}

const put = durable.EntityOperation[int, int]("put")

var stock = durable.EntityID{Name: "stock", Key: "shoes"}

// Stored times end with the year 9999 in UTC. A start or a signal for a later time could
// not be read again.
func TestStartAtAndSignalAt_AcceptTimesUntilTheEndOf9999(t *testing.T) {
	t.Parallel()
	c := durable.NewClient(memhub.New(), nil)
	if _, err := c.StartByName(t.Context(), "A", nil, durable.InstanceID("a")); err != nil {
		t.Fatal(err)
	}
	operation := func(t *testing.T, name string, at time.Time) (err error) {
		defer func() {
			if usage, ok := recover().(*durable.UsageError); ok {
				err = usage
			}
		}()
		e := durable.Entity("Delaying", durable.Op("start", (*delaying).Start), durable.Op("signal", (*delaying).Signal))
		r := perform(t, e, entity.Operation{Name: name, Input: new(`"` + at.Format(time.RFC3339Nano) + `"`)})
		if r.Failure != nil {
			return errors.New(r.Failure.ErrorMessage)
		}
		return nil
	}
	for name, call := range map[string]func(t *testing.T, at time.Time) error{
		"Start": func(t *testing.T, at time.Time) error {
			_, err := c.StartByName(t.Context(), "A", nil, durable.StartAt(at))
			return err
		},
		"Restart": func(t *testing.T, at time.Time) error {
			_, err := c.Restart(t.Context(), "a", durable.StartAt(at))
			return err
		},
		"Signal": func(t *testing.T, at time.Time) error {
			return put.Signal(t.Context(), c, stock, 1, durable.SignalAt(at))
		},
		"SignalEntity": func(t *testing.T, at time.Time) error {
			return c.SignalEntity(t.Context(), stock, "put", nil, durable.SignalAt(at))
		},
		"StartFrom":               func(t *testing.T, at time.Time) error { return operation(t, "start", at) },
		"SignalFrom of an entity": func(t *testing.T, at time.Time) error { return operation(t, "signal", at) },
		"SignalFrom of an instance": func(t *testing.T, at time.Time) error {
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
				put.SignalFrom(ctx, stock, 1, durable.SignalAt(at))
				return durable.Void{}, nil
			})
			s.Start(nil)
			if failure := s.End().Failure; failure != nil {
				return errors.New(failure.String())
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			boundary.Check(t, name, func(offset int) string {
				at := time.Date(9999, 12, 31, 23, 59, 59, 999_999_900, time.UTC).Add(time.Duration(offset) * 100)
				err := call(t, at.In(time.FixedZone("", -12*60*60))) // in this zone it is still the year 9999
				if err == nil {
					return "accepted"
				}
				if _, reason, ok := strings.Cut(err.Error(), "is in the year 10000 "); ok {
					return reason
				}
				return err.Error()
			}, "accepted", "accepted", "in UTC; the last valid year is 9999")
		})
	}
}

// minimalHub hides the optional interfaces of a hub.
type minimalHub struct{ provider.Client }

func TestClient_ReturnsErrNotSupported(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, _ *durable.Client) {
		h := memhub.New()
		defer run(t, h, p.registry(), durable.Config{})()
		c := durable.NewClient(minimalHub{h}, p.registry())
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, ""))
		_, _ = i.Wait(t.Context())
		if _, err := i.Purge(t.Context()); !errors.Is(err, durable.ErrNotSupported) {
			t.Errorf("purge: %v, want ErrNotSupported", err)
		}
		if err := i.Rewind(t.Context(), ""); !errors.Is(err, durable.ErrNotSupported) {
			t.Errorf("rewind: %v, want ErrNotSupported", err)
		}
		if _, err := c.PurgeMany(t.Context(), durable.PurgeFilter{}); !errors.Is(err, durable.ErrNotSupported) {
			t.Errorf("purge many: %v, want ErrNotSupported", err)
		}
	})
}
