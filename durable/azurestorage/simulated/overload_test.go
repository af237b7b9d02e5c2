package simulated_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// weather is a load pattern of an account. delay returns the additional duration of a request at a
// time since the start, with a number of requests in flight to its service.
type weather struct {
	name  string
	delay func(r azsim.Request, at time.Duration, underway int) time.Duration
}

// storm returns a delay that rises to 24 s, or up to 30 s depending on the load, and falls again.
func storm(from, until time.Duration, services string) func(azsim.Request, time.Duration, int) time.Duration {
	return func(r azsim.Request, at time.Duration, underway int) time.Duration {
		if at < from || at > until || !strings.Contains(services, r.Service) {
			return 0
		}
		rise := min(1, float64(at-from)/float64(30*time.Second), float64(until-at)/float64(30*time.Second))
		return time.Duration(rise * float64(24*time.Second+min(6*time.Second, time.Duration(underway)*time.Second/10)))
	}
}

// crowded returns a delay for a service that answers perSecond requests per second between two
// times. longest limits the delay.
func crowded(from, until time.Duration, perSecond int, longest time.Duration) func(azsim.Request, time.Duration, int) time.Duration {
	return func(_ azsim.Request, at time.Duration, underway int) time.Duration {
		if at < from || at > until {
			return 0
		}
		return min(longest, time.Duration(underway)*time.Second/time.Duration(perSecond))
	}
}

const (
	stormBegins = 15 * time.Second
	stormEnds   = 10 * time.Minute
)

var weathers = []weather{
	{"slow queues", storm(stormBegins, stormEnds, azsim.QueueService)},
	{"slow tables", storm(stormBegins, stormEnds, azsim.TableService)},
	{"slow services", storm(stormBegins, stormEnds, azsim.QueueService+azsim.TableService+azsim.BlobService)},
	{"two requests per second", crowded(stormBegins, stormEnds, 2, 30*time.Second)},
	{"two requests per second for an hour", crowded(stormBegins, time.Hour, 2, 30*time.Second)},
	{"two requests per second for an hour, with long waits", crowded(stormBegins, time.Hour, 2, 5*time.Minute)},
}

// tally has the counts of a run.
type tally struct {
	took     time.Duration // until the last instance had ended
	requests int           // without lease requests and empty receives
	puts     int           // enqueued work items and messages
	runs     int           // runs of activities
}

const (
	fans     = 20
	fanWidth = 30
)

// run runs fan-outs on three workers with the load pattern w.
func (w weather) run(t *testing.T) (got tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		cfg := azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond}
		if w.delay != nil {
			cfg.Delay = func(r azsim.Request, underway int) time.Duration { return w.delay(r, time.Since(began), underway) }
		}
		account := azsim.New(cfg)
		defer account.End()
		var mu sync.Mutex // protects got.runs
		work := func(ctx context.Context, city string) (string, error) {
			mu.Lock()
			got.runs++
			mu.Unlock()
			time.Sleep(2*time.Second + time.Duration(chance.Float64(ctx, "work")*float64(time.Second)))
			return city, nil
		}
		fan := func(ctx *durable.Context, _ durable.Void) (int, error) {
			all, err := durable.Map(ctx, work, make([]string, fanWidth), fanWidth)
			return len(all), err
		}
		registry := durable.NewRegistry(durable.Orchestrator("Fan", fan), durable.Activity("Work", work))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var client *durable.Client
		for i := range 3 {
			name := fmt.Sprintf("w%d", i)
			hub := openWith(t, name, account, account.Worker(name))
			if client == nil {
				client = durable.NewClient(hub, registry)
			}
			running.Go(func() {
				_ = durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(chance.With(ctx, account.Chance(name)))
			})
		}
		time.Sleep(5 * time.Second)
		for i := range fans { // some of them start while the account is slow
			running.Go(func() {
				_, err := durable.Start(ctx, client, fan, durable.Void{}, durable.InstanceID(fmt.Sprint("fan-", i)))
				if err != nil && !errors.Is(err, provider.ErrInstanceExists) {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		for deadline := time.Now().Add(2 * time.Hour); ; time.Sleep(time.Second) {
			open := fans
			for _, row := range account.Rows("SimInstances") {
				if row.Text("RuntimeStatus") == history.Completed.String() {
					open--
				}
			}
			if open == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%d of %d instances have not completed", open, fans)
				break
			}
		}
		got.took = time.Since(began)
		time.Sleep(5 * time.Minute) // until the remaining messages are deleted
		stop()
		running.Wait()
		for _, left := range leftovers(account) {
			t.Error(left)
		}
		got.count(account.Log())
	})
	return got
}

// drain lets three workers process the work items of a dead worker while queue requests take longer
// by delay.
func drain(t *testing.T, delay time.Duration) (got tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var dead, slow atomic.Bool
		account := azsim.New(azsim.Config{
			Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Decide: func(r azsim.Request) azsim.Fault {
				if r.Worker == "dead" && dead.Load() {
					return azsim.KillBefore
				}
				return azsim.None
			},
			Delay: func(r azsim.Request, _ int) time.Duration {
				if slow.Load() && r.Service == azsim.QueueService {
					return delay
				}
				return 0
			},
		})
		defer account.End()
		var runs atomic.Int32
		work := func(ctx context.Context, _ string) (string, error) {
			if !dead.Load() {
				<-ctx.Done()
				return "", ctx.Err()
			}
			runs.Add(1)
			time.Sleep(2 * time.Second)
			return "", nil
		}
		fan := func(ctx *durable.Context, _ durable.Void) (int, error) {
			all, err := durable.Map(ctx, work, make([]string, fanWidth), fanWidth)
			return len(all), err
		}
		registry := durable.NewRegistry(durable.Orchestrator("Fan", fan), durable.Activity("Work", work))
		begin := func(name string) (client *durable.Client, stop func()) {
			hub := openWith(t, name, account, account.Worker(name))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				_ = durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(chance.With(ctx, account.Chance(name)))
			})
			return durable.NewClient(hub, registry), func() {
				cancel()
				running.Wait()
			}
		}
		client, stop := begin("dead")
		time.Sleep(5 * time.Second)
		for i := range drained {
			if _, err := durable.Start(t.Context(), client, fan, durable.Void{}, durable.InstanceID(fmt.Sprint("fan-", i))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		dead.Store(true)
		stop()
		if n := len(account.Messages("sim-workitems")); n != drained*fanWidth {
			t.Fatalf("%d work items, want %d", n, drained*fanWidth)
		}
		time.Sleep(2 * time.Minute) // longer than any message is hidden
		slow.Store(true)
		before, began := len(account.Log()), time.Now()
		for i := range 3 {
			_, stop := begin(fmt.Sprint("w", i))
			defer stop()
		}
		for open := drained; open > 0; time.Sleep(10 * time.Second) {
			open = drained
			for _, row := range account.Rows("SimInstances") {
				if row.Text("RuntimeStatus") == history.Completed.String() {
					open--
				}
			}
			if time.Since(began) > 6*time.Hour {
				t.Errorf("%d of %d instances have not completed, and %d work items are left", open, drained, len(account.Messages("sim-workitems")))
				break
			}
		}
		got.took, got.runs = time.Since(began), int(runs.Load())
		got.count(account.Log()[before:])
	})
	return got
}

// drained is the number of fan-outs in drain.
const drained = 36

// Work items are processed even if the queues respond after 24 s and visibility timeouts are 30 s.
// It is slow, but takes few more requests than with fast queues.
func TestOverload_ProcessesABacklogOfWorkItems(t *testing.T) {
	calm, got := drain(t, 0), drain(t, 24*time.Second)
	t.Logf("calm: %+v, slow: %+v", calm, got)
	if got.requests > calm.requests*3/2 {
		t.Errorf("%d requests, want at most 1.5 times the %d on a fast account", got.requests, calm.requests)
	}
	if got.puts > calm.puts*5/4 {
		t.Errorf("%d messages put, want about %d as on a fast account", got.puts, calm.puts)
	}
	if got.runs > calm.runs*5/4 {
		t.Errorf("activities ran %d times, want about %d", got.runs, calm.runs)
	}
}

// While the renewal of a message is late, the worker receives no messages: their renewals would be
// late too.
func TestOverload_ReceivesNothingWhileARenewalIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Delay: func(r azsim.Request, _ int) time.Duration {
			if r.Worker == "w" && r.Operation == "UpdateMessage" {
				return time.Minute
			}
			return 0
		}})
		defer account.End()
		work := func(context.Context, string) (string, error) {
			time.Sleep(time.Minute)
			return "", nil
		}
		one := func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.CallActivity(ctx, work, "").Await()
		}
		registry := durable.NewRegistry(durable.Orchestrator("One", one), durable.Activity("Work", work))
		hub := openWith(t, "w", account, account.Worker("w"))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			_ = durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		})
		defer running.Wait()
		defer stop()
		client := durable.NewClient(openWith(t, "client", account, account.Worker("client")), registry)
		time.Sleep(5 * time.Second)
		if _, err := durable.Start(t.Context(), client, one, durable.Void{}, durable.InstanceID("i")); err != nil {
			t.Fatal(err)
		}
		for range 40 { // so that the queue has messages
			time.Sleep(time.Second)
			if err := goOn.Raise(t.Context(), client, "i", "now"); err != nil {
				t.Fatal(err)
			}
		}
		var hiddenUntil time.Duration
		for _, e := range account.Log() {
			if e.Operation == "PutMessage" && e.Target == "sim-workitems" {
				hiddenUntil = e.AppliedAt + 30*time.Second
			}
		}
		received := 0
		for _, e := range account.Log() {
			if late := hiddenUntil - 3*time.Second; e.Operation == "GetMessages" && e.SentAt > late && e.SentAt < hiddenUntil {
				t.Errorf("a receive from %s %v before the message became visible", e.Target, hiddenUntil-e.SentAt)
			} else if e.Operation == "GetMessages" && e.SentAt > late-10*time.Second && e.SentAt < late {
				received++
			}
		}
		if received == 0 {
			t.Error("no receive before the renewal was late")
		}
	})
}

func (got *tally) count(log []azsim.Entry) {
	for _, e := range log {
		switch {
		case e.Operation == "GetMessages" && !bytes.Contains(e.Answer, []byte("<MessageId>")), e.Target == "SimPartitions":
			continue
		case e.Operation == "PutMessage":
			got.puts++
		}
		got.requests++
	}
}

// An account is slow for at least ten minutes and then fast again. All instances complete with few
// additional requests: late work is not repeated.
func TestOverload_DoesNotAmplifyItself(t *testing.T) {
	calm := weather{name: "calm"}.run(t)
	t.Logf("calm: %+v", calm)
	for i, w := range weathers {
		if i%usual().sample != 0 {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			got := w.run(t)
			t.Logf("%+v", got)
			if got.requests > calm.requests*4/3 {
				t.Errorf("%d requests, want at most 4/3 of the %d on a fast account", got.requests, calm.requests)
			}
			if got.took > 40*time.Minute {
				t.Errorf("took %v, want at most 40m0s: no progress while the account was slow", got.took)
			}
			if got.puts > calm.puts*5/4 {
				t.Errorf("%d messages put, want about %d as on a fast account", got.puts, calm.puts)
			}
			if got.runs > calm.runs*5/4 {
				t.Errorf("activities ran %d times, want about %d", got.runs, calm.runs)
			}
		})
	}
}
