package durabletest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

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

// shapes returns orchestrators that each use one feature and then call more activities, which reveal a
// wrongly restored history. They send their HTTP requests to url.
func shapes(url string) map[string]func(*durable.Context, int) (string, error) {
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
			durable.SignalFrom(ctx, balanceOf, (*balance).add, 1)
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
			ctx.Sleep(time.Millisecond)
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
			if err := leave.RaiseFrom(ctx, "somebody", 1); err != nil {
				return "", err
			}
			if _, err := leave.Wait(ctx).Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"HTTP": func(ctx *durable.Context, _ int) (string, error) {
			return request(ctx, durable.HTTPRequest{URL: url + "/0"})
		},
		"PolledHTTP": func(ctx *durable.Context, _ int) (string, error) {
			return request(ctx, durable.HTTPRequest{URL: url + "/2", PollInterval: time.Millisecond})
		},
		"PolledHTTPInTime": func(ctx *durable.Context, _ int) (string, error) {
			return request(ctx, durable.HTTPRequest{URL: url + "/2", PollInterval: time.Millisecond, TotalTimeout: time.Hour})
		},
		"Generations":           generations,
		"GenerationsAtOnce":     generationsAtOnce,
		"GenerationsWithEvents": generationsWithEvents,
		"Suspended": func(ctx *durable.Context, _ int) (string, error) {
			if _, err := leave.Wait(ctx).Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"SuspendedAmidSteps": func(ctx *durable.Context, _ int) (string, error) {
			if _, err := durable.CallActivity(ctx, quote, "Oslo").Await(); err != nil {
				return "", err
			}
			call := durable.CallEntity(ctx, balanceOf, (*balance).add, 5)
			if _, err := leave.Wait(ctx).AwaitTimeout(time.Hour); err != nil {
				return "", err
			}
			if _, err := call.Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"Rewound": func(ctx *durable.Context, _ int) (string, error) {
			if _, err := steps(ctx); err != nil {
				return "", err
			}
			if _, err := once.Call(ctx, "a").Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"RewoundTwice": func(ctx *durable.Context, _ int) (string, error) {
			a, b := once.Call(ctx, "a"), durable.CallActivity(ctx, quote, "Oslo")
			if _, err := durable.AwaitAll(ctx, a, b); err != nil {
				return "", err
			}
			if _, err := leave.Wait(ctx).Await(); err != nil {
				return "", err
			}
			if _, err := once.Call(ctx, "b").Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"RewoundChild": func(ctx *durable.Context, _ int) (string, error) {
			child := durable.OrchestratorName[int, string]("Rewound")
			if _, err := child.Call(ctx, 1).Await(); err != nil {
				return "", err
			}
			return steps(ctx)
		},
		"TerminatedAtOnce": func(ctx *durable.Context, _ int) (string, error) { return stepsForever(ctx) },
		"Terminated":       func(ctx *durable.Context, _ int) (string, error) { return stepsForever(ctx) },
		"Failure": func(ctx *durable.Context, _ int) (string, error) {
			return durable.CallActivity(ctx, refuse, "x").Await()
		},
	}
}

// steps calls the activities at the end of a shape.
func steps(ctx *durable.Context) (string, error) {
	for _, city := range []string{"Oslo", "Rome"} {
		if _, err := durable.CallActivity(ctx, quote, city).Await(); err != nil {
			return "", err
		}
	}
	return durable.CallActivity(ctx, forecast, "Rome").Await()
}

// request sends a request, which must succeed, and then calls steps.
func request(ctx *durable.Context, r durable.HTTPRequest) (string, error) {
	resp, err := durable.CallHTTP(ctx, r).Await()
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	return steps(ctx)
}

// countdown answers a request for /n with 202 and a Location of /n-1, until n is 0.
func countdown(w http.ResponseWriter, r *http.Request) {
	if n, err := strconv.Atoi(r.URL.Path[1:]); err == nil && n > 0 {
		w.Header().Set("Location", fmt.Sprintf("/%d", n-1))
		w.WriteHeader(http.StatusAccepted)
	}
}

func generations(ctx *durable.Context, n int) (string, error) {
	if s, err := steps(ctx); err != nil || n == 3 {
		return s, err
	}
	return durable.ContinueAsNew(ctx, generations, n+1)
}

func generationsAtOnce(ctx *durable.Context, n int) (string, error) {
	if n < 3 {
		return durable.ContinueAsNew(ctx, generationsAtOnce, n+1)
	}
	return steps(ctx)
}

// generationsWithEvents waits for an event in each execution.
func generationsWithEvents(ctx *durable.Context, n int) (string, error) {
	if _, err := leave.Wait(ctx).Await(); err != nil {
		return "", err
	}
	if _, err := durable.CallEntity(ctx, balanceOf, (*balance).add, 5).Await(); err != nil {
		return "", err
	}
	if n < 3 {
		return durable.ContinueAsNew(ctx, generationsWithEvents, n+1)
	}
	return steps(ctx)
}

// once is an activity whose first call for each instance and input fails.
const once = durable.ActivityName[string, string]("Once")

func newOnce() *durable.Registration {
	var known sync.Map
	return durable.Activity("Once", func(ctx context.Context, in string) (string, error) {
		info, _ := durable.ActivityInfoFrom(ctx)
		if _, again := known.LoadOrStore(fmt.Sprint(info.InstanceID, in), true); !again {
			return "", errors.New("refused once")
		}
		return in, nil
	})
}

// clients send instances of some shapes the requests that they wait for.
var clients = map[string]func(*driver){
	"Event": func(d *driver) { d.raise() },
	"GenerationsWithEvents": func(d *driver) {
		for range 3 {
			d.raise()
		}
	},
	"Suspended":          suspended,
	"SuspendedAmidSteps": suspended,
	"Rewound":            func(d *driver) { d.rewind(history.Completed) },
	"RewoundTwice": func(d *driver) {
		d.rewind(history.Running)
		d.raise()
		d.rewind(history.Completed)
	},
	"RewoundChild": func(d *driver) { d.rewind(history.Completed) },
	"Terminated": func(d *driver) {
		d.await(history.Running)
		d.must(d.c.Terminate(d.ctx, d.id, "enough"))
	},
	"TerminatedAtOnce": func(d *driver) { d.must(d.c.Terminate(d.ctx, d.id, "enough")) },
}

func suspended(d *driver) {
	d.await(history.Running)
	d.must(d.c.Suspend(d.ctx, d.id, "audit"))
	d.await(history.Suspended)
	d.raise()
	d.must(d.c.Resume(d.ctx, d.id, "audited"))
}

// A driver is a client of one instance.
type driver struct {
	t   *testing.T
	ctx context.Context
	c   *durable.Client
	id  durable.InstanceID
}

func (d *driver) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatalf("%s: %v", d.id, err)
	}
}

func (d *driver) raise() { d.must(leave.Raise(d.ctx, d.c, d.id, 7)) }

// rewind waits until the instance has failed, rewinds it and waits for the status then.
func (d *driver) rewind(then history.RuntimeStatus) {
	d.await(history.Failed)
	d.must(d.c.Rewind(d.ctx, d.id, "again"))
	d.await(then)
}

func (d *driver) await(status history.RuntimeStatus) {
	d.t.Helper()
	patience.Until(d.t, fmt.Sprintf("%s is %v", d.id, status), func() bool {
		s, err := d.c.Status(d.ctx, d.id, durable.Fetch{})
		d.must(err)
		return s.Status == status
	})
}

// origins matches a member of requests to entities that .NET does not write.
var origins = regexp.MustCompile(`,\\"origin\\":\\"[^\\]*\\"`)

func refuse(context.Context, string) (string, error) { return "", errors.New("refused") }

// exports collects the histories of a hub's export, by instance ID.
type exports map[string][]history.Event

func (e exports) Instance(_ context.Context, s *provider.InstanceState, past []history.Event) error {
	e[s.Instance.InstanceID] = slices.Clone(past)
	return nil
}
func (exports) Activity(context.Context, provider.TaskMessage) error { return nil }
func (exports) Message(context.Context, provider.TaskMessage) error  { return nil }

// The history of every shape on a hub fits the code that wrote it, in every format.
func TestReplay_AcceptsEveryShapeInEveryFormat(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	t.Run("local file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "hub.db")
		hub, err := embedded.Open(path, embedded.Config{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		all, shapes := replayShapes(t, hub, nil)
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
		for name := range shapes {
			t.Run(name+" hub history --output json", func(t *testing.T) {
				if text := hubHistory(t, path, name); name != "TerminatedAtOnce" || text != "[]\n" { // it was terminated before its first episode
					durabletest.Replay(t, all, file(t, text))
				}
			})
		}
	})
	t.Run("Azure Storage", func(t *testing.T) {
		t.Parallel()
		account := azsim.New(azsim.Config{})
		defer account.End()
		connection, err := azurestorage.ParseConnectionString(account.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		worker := account.Worker("w")
		hub, err := azurestorage.Open(connection, azurestorage.Config{
			TaskHub: recordedHub, PartitionCount: 1, MaxQueuePollingInterval: 50 * time.Millisecond,
			AppLease: azurestorage.AppLease{Disabled: true}, Transport: worker, Logger: quiet,
		})
		if err != nil {
			t.Fatal(err)
		}
		replayShapes(t, hub, func(id string) []byte { return rowsOf(t, account.ConnectionString(), worker, id) })
	})
}

// hubHistory returns the output of `hub history` for an instance in a hub file.
func hubHistory(t *testing.T, path, id string) string {
	t.Helper()
	root := t.TempDir()
	settings := fmt.Sprintf(`{"extensions": {"durableTask": {"storageProvider": {"type": "embedded", "path": %q}}}}`, path)
	if err := os.WriteFile(filepath.Join(root, "host.json"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "hub", "history", id, "--output", "json")
	cmd.Dir, cmd.Stderr = root, t.Output()
	cmd.Env = []string{"HOME=" + root, "TMPDIR=" + os.TempDir(), hubToolRole + "=1"}
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// stepsForever calls steps and then waits until it is terminated.
func stepsForever(ctx *durable.Context) (string, error) {
	if _, err := steps(ctx); err != nil {
		return "", err
	}
	_, err := leave.Wait(ctx).Await()
	return "", err
}

// functionsOf returns the shapes and the functions that they call.
func functionsOf(shapes map[string]func(*durable.Context, int) (string, error)) []*durable.Registration {
	all := append(journeys(), durable.Activity("Refuse", refuse), newOnce(), durable.Entity("Balance", durable.Op("add", (*balance).add)))
	for name, f := range shapes {
		all = append(all, durable.Orchestrator(name, f))
	}
	return all
}

// runShapes runs all shapes on a hub until they have ended. The instance ID is the shape's name. The
// server answers requests until the test calls stop.
func runShapes(t *testing.T, hub provider.Provider) (all []*durable.Registration, done map[string]bool, server *handler.Server, stop func()) {
	target := httptest.NewServer(http.HandlerFunc(countdown))
	defer target.Close()
	shapes := shapes(target.URL)
	all, done = functionsOf(shapes), make(map[string]bool)
	server, stop = serve(t, all, hub)
	stop = sync.OnceFunc(stop)
	t.Cleanup(stop)
	ctx, c := t.Context(), durable.NewClient(hub, durable.NewRegistry(all...))
	for name := range shapes {
		id, err := c.StartByName(ctx, name, []byte("1"), durable.InstanceID(name))
		if err != nil {
			t.Fatal(err)
		}
		if drive, ok := clients[name]; ok {
			drive(&driver{t, ctx, c, id})
		}
	}
	for name := range shapes {
		_, err := durable.InstanceOf[string](c, durable.InstanceID(name)).Wait(ctx)
		if (err != nil) != (name == "Failure" || strings.HasPrefix(name, "Terminated")) {
			t.Fatal(name, err)
		}
		done[name] = true
	}
	return all, done, server, stop
}

// testdata/recorded/shapes has func's output for shapes on Azurite. func rejects histories with events
// that the orchestration sent to instances or entities.
func TestReplay_AcceptsTheOutputOfFuncForEveryShape(t *testing.T) {
	t.Parallel()
	all := functionsOf(shapes("http://localhost"))
	for _, file := range recorded(t, "recorded/shapes", "*.func.json") {
		t.Run(filepath.Base(file), func(t *testing.T) { durabletest.Replay(t, all, file) })
	}
}

// replayShapes runs all shapes on a hub and replays their histories. rows returns an instance's rows of
// the History table; it is nil if the hub has no such table.
func replayShapes(t *testing.T, hub interface {
	provider.Provider
	provider.Portable
}, rows func(id string) []byte,
) (all []*durable.Registration, shapes map[string]bool) {
	all, shapes, server, stop := runShapes(t, hub)
	defer stop()
	ctx, c := t.Context(), durable.NewClient(hub, durable.NewRegistry(all...))
	events, shown := make(exports), make(map[string]string)
	for name := range shapes {
		var err error
		if events[name], err = c.History(ctx, durable.InstanceID(name)); err != nil {
			t.Fatal(err)
		}
		shown[name] = string(get(t, server, "/durabletask/instances/"+name+"?showHistory=true&showHistoryOutput=true"))
	}
	stop()
	exported := make(exports)
	if err := hub.Export(ctx, exported, provider.ExportOptions{IgnoreHidden: true}); err != nil {
		t.Fatal(err)
	}
	for name := range shapes {
		if name == "TerminatedAtOnce" && len(events[name]) == 0 {
			continue // it was terminated before its first episode, and has no history
		}
		forms := map[string]func(durabletest.TB){
			"events":         func(tb durabletest.TB) { durabletest.ReplayEvents(tb, all, events[name]) },
			"export":         func(tb durabletest.TB) { durabletest.ReplayEvents(tb, all, exported[name]) },
			"management API": func(tb durabletest.TB) { durabletest.Replay(tb, all, file(t, shown[name])) },
			"management API, only the events": func(tb durabletest.TB) {
				var status struct{ HistoryEvents json.RawMessage }
				if err := json.Unmarshal([]byte(shown[name]), &status); err != nil {
					tb.Fatalf("%v", err)
				}
				durabletest.Replay(tb, all, file(t, string(status.HistoryEvents)))
			},
			"management API, without members that .NET does not write": func(tb durabletest.TB) {
				durabletest.Replay(tb, all, file(t, origins.ReplaceAllString(shown[name], "")))
			},
		}
		if rows != nil {
			forms["rows"] = func(tb durabletest.TB) { durabletest.Replay(tb, all, file(t, string(rows(name)))) }
		}
		for form, replay := range forms {
			t.Run(name+" "+form, func(t *testing.T) { replay(t) })
		}
	}
	return all, shapes
}
