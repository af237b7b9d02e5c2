package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// BenchmarkHelloSequence runs sequences of three activities with hand-made checkpoints, so that it
// measures only the provider. One operation is one sequence.
func BenchmarkHelloSequence(b *testing.B) {
	for _, relaxed := range []bool{false, true} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/inFlight=%d", mode(relaxed), inFlight), func(b *testing.B) {
				x := newBench(b, relaxed)
				x.work(3, inFlight)
				x.sequences(b, inFlight)
			})
		}
	}
}

// BenchmarkSequentialActivities runs one instance of 500 activities, with and without an extended
// session. One operation is one instance.
func BenchmarkSequentialActivities(b *testing.B) {
	for _, relaxed := range []bool{false, true} {
		for _, extended := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/extended=%v", mode(relaxed), extended), func(b *testing.B) {
				x := newBench(b, relaxed)
				x.extended = extended
				x.work(500, 1)
				x.sequences(b, 1)
			})
		}
	}
}

// BenchmarkStart starts instances that no worker runs.
func BenchmarkStart(b *testing.B) {
	for _, relaxed := range []bool{false, true} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/inFlight=%d", mode(relaxed), inFlight), func(b *testing.B) {
				x := newBench(b, relaxed)
				var n atomic.Int64
				b.SetParallelism(inFlight)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := x.start(fmt.Sprintf("instance-%08d", n.Add(1))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkBesideQueries runs one sequence at a time while a client queries a hub with 20,000 other
// instances. One operation is one sequence.
func BenchmarkBesideQueries(b *testing.B) {
	for name, q := range map[string]*provider.Query{
		"none":     nil,
		"page=100": {PageSize: 100},
		"nothing":  {PageSize: 100, Name: "nobody"},
		"all":      {PageSize: 20_000},
	} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, true)
			x.fill(b, 20_000)
			x.work(3, 1)
			if q != nil {
				var asking sync.WaitGroup
				asking.Go(func() {
					for x.ctx.Err() == nil {
						if _, err := x.hub.Instances(x.ctx, *q); err != nil && x.ctx.Err() == nil {
							b.Error(err)
						}
					}
				})
				b.Cleanup(asking.Wait)
				b.Cleanup(x.cancel)
			}
			x.sequences(b, 1)
		})
	}
}

// BenchmarkPurgeMany purges completed instances, found in pages of 100. One operation is one
// instance. Its cost must not depend on the number of instances.
func BenchmarkPurgeMany(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint("of=", n), func(b *testing.B) {
			var purging time.Duration
			purged := 0
			for purged < b.N {
				b.StopTimer()
				x := newBench(b, true)
				x.work(0, 4)
				x.fill(b, n)
				b.StartTimer()
				from := time.Now()
				for q := (provider.Query{Statuses: []history.RuntimeStatus{history.Completed}}); ; {
					page, err := x.hub.Instances(x.ctx, q)
					if err != nil {
						b.Fatal(err)
					}
					for _, s := range page.Instances {
						if err := x.hub.Purge(x.ctx, s.Instance.InstanceID, nil); err != nil {
							b.Fatal(err)
						}
						purged++
					}
					if q.Continuation = page.Continuation; q.Continuation == "" {
						break
					}
				}
				purging += time.Since(from)
				x.cancel()
			}
			b.ReportMetric(float64(purging.Microseconds())/float64(purged), "us/instance")
		})
	}
}

// fill starts n instances and waits for their ends if a worker is running. Otherwise the instances
// are scheduled for much later.
func (x *bench) fill(b *testing.B, n int) {
	var at time.Time
	if !x.works {
		at = time.Now().Add(time.Hour)
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := x.startAt(fmt.Sprintf("other-%08d", i), at); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	for x.works && x.finished.Load() < int64(n) {
		time.Sleep(10 * time.Millisecond)
	}
}

func mode(relaxed bool) string {
	if relaxed {
		return "relaxed"
	}
	return "durable"
}

// A bench is a hub with a minimal engine.
type bench struct {
	tb       testing.TB
	hub      *embedded.Hub
	ctx      context.Context
	cancel   context.CancelFunc
	extended bool
	works    bool
	finished atomic.Int64

	mu   sync.Mutex
	done map[string]chan struct{}
}

func newBench(tb testing.TB, relaxed bool) *bench {
	hub := open(tb, filepath.Join(tb.TempDir(), "hub.db"), embedded.Config{Relaxed: relaxed, Logger: slog.New(slog.DiscardHandler)})
	run(tb, hub)
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	return &bench{tb: tb, hub: hub, ctx: ctx, cancel: cancel, done: make(map[string]chan struct{})}
}

// work runs instances of n activities each, and the activities.
func (x *bench) work(n, workers int) {
	x.works = true
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { x.orchestrate(n) })
		all.Go(x.act)
	}
	x.tb.Cleanup(func() {
		x.cancel()
		all.Wait()
	})
}

func (x *bench) orchestrate(n int) {
	for {
		item, err := x.hub.NextOrchestration(x.ctx)
		if err != nil {
			return
		}
		x.episodes(item, n)
		if err := item.Session.Release(x.ctx); err != nil {
			x.tb.Error(err)
		}
	}
}

func (x *bench) episodes(item *provider.OrchestrationWorkItem, n int) {
	done := 0
	for _, e := range item.History {
		if e.Type() == history.TypeTaskCompleted {
			done++
		}
	}
	messages := item.Messages
	for len(messages) > 0 {
		cp := &provider.Checkpoint{Instance: item.Instance}
		head := history.NewHeader(time.Now())
		cp.NewEvents = append(cp.NewEvents, &history.OrchestratorStarted{Header: head})
		for _, m := range messages {
			cp.NewEvents = append(cp.NewEvents, m.Event)
			if m.Event.Type() == history.TypeTaskCompleted {
				done++
			}
		}
		scheduling := history.Header{EventID: done, Timestamp: head.Timestamp}
		if done == n {
			cp.NewEvents = append(cp.NewEvents, &history.ExecutionCompleted{Header: scheduling, Status: history.Completed, Result: new(`["Hello Tokyo!","Hello Seattle!","Hello London!"]`)})
		} else {
			cp.NewEvents = append(cp.NewEvents, &history.TaskScheduled{Header: scheduling, Name: "E1_SayHello"})
			cp.Activities = []provider.TaskMessage{{Event: &history.TaskScheduled{Header: scheduling, Name: "E1_SayHello", Input: new(`["Tokyo"]`)}, Target: item.Instance}}
		}
		cp.NewEvents = append(cp.NewEvents, &history.OrchestratorCompleted{Header: head})
		if err := item.Session.Commit(x.ctx, cp); err != nil {
			x.tb.Error(err)
			return
		}
		if done == n {
			x.ended(item.Instance.InstanceID)
			return
		}
		if !x.extended {
			return
		}
		var err error
		if messages, err = item.Session.Next(x.ctx, time.Second); err != nil {
			return
		}
	}
}

func (x *bench) act() {
	for {
		a, err := x.hub.NextActivity(x.ctx)
		if err != nil {
			return
		}
		if err := a.Lock.Complete(x.ctx, &history.TaskCompleted{Header: history.NewHeader(time.Now()), TaskScheduledID: a.Task.EventID, Result: new(`"Hello Tokyo!"`)}); err != nil && x.ctx.Err() == nil {
			x.tb.Error(err)
		}
	}
}

func (x *bench) start(id string) error { return x.startAt(id, time.Time{}) }

func (x *bench) startAt(id string, at time.Time) error {
	start := &history.ExecutionStarted{
		Header:   history.NewHeader(time.Now()),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "0123456789abcdef0123456789abcdef"},
		Name:     "E1_HelloSequence", Input: new("null"), ScheduledStart: at,
	}
	return x.hub.StartInstance(x.ctx, provider.TaskMessage{Event: start, Target: start.Instance}, []history.RuntimeStatus{history.Running, history.Pending})
}

func (x *bench) ended(id string) {
	x.finished.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.done[id]; c != nil {
		close(c)
		delete(x.done, id)
	}
}

// sequences runs b.N instances, inFlight at a time.
func (x *bench) sequences(b *testing.B, inFlight int) {
	var next atomic.Int64
	took := make([]time.Duration, b.N)
	var all sync.WaitGroup
	b.ResetTimer()
	for range inFlight {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				// IDs as random as the ones that clients generate.
				id := fmt.Sprintf("%016x", uint64(i+1)*0x9e3779b97f4a7c15)
				c := make(chan struct{})
				x.mu.Lock()
				x.done[id] = c
				x.mu.Unlock()
				from := time.Now()
				if err := x.start(id); err != nil {
					b.Error(err)
					return
				}
				<-c
				took[i] = time.Since(from)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "instances/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-us")
}
