package simulated_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// fleet is a hub with several workers.
type fleet struct {
	*testing.T
	account *azsim.Account
	config  azurestorage.Config
	began   time.Time
	running map[string]*member
	delay   *atomic.Int64 // additional delay of each response
	refused *atomic.Value // a func(azsim.Request) bool: the requests that fail
}

// slow delays each response by delay from now on.
func (f *fleet) slow(delay time.Duration) { f.delay.Store(int64(delay)) }

type member struct {
	worker *azsim.Worker
	stop   context.CancelFunc
	ended  chan error
}

// inFleet runs f in a bubble with a simulated account.
func inFleet(t *testing.T, cfg azurestorage.Config, f func(*fleet)) {
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		var refused atomic.Value
		account := azsim.New(azsim.Config{
			Seed: 7, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Delay: func(azsim.Request, int) time.Duration { return time.Duration(delay.Load()) },
			Decide: func(r azsim.Request) azsim.Fault {
				if is, ok := refused.Load().(func(azsim.Request) bool); ok && is(r) {
					return azsim.FailBefore
				}
				return azsim.None
			},
		})
		defer account.End()
		if cfg.TaskHub == "" {
			cfg.TaskHub = "Fleet"
		}
		w := &fleet{T: t, account: account, config: cfg, began: time.Now(), running: map[string]*member{}, delay: &delay, refused: &refused}
		defer func() {
			for name := range w.running {
				w.leave(name)
			}
		}()
		f(w)
	})
}

// hub returns the hub with the requests of a worker.
func (f *fleet) hub(name string, change func(*azurestorage.Config)) (*azurestorage.TaskHub, *azsim.Worker) {
	f.Helper()
	c, err := azurestorage.ParseConnectionString(f.account.ConnectionString())
	if err != nil {
		f.Fatal(err)
	}
	w := f.account.Worker(name)
	cfg := f.config
	cfg.WorkerID, cfg.Transport = name, w
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if change != nil {
		change(&cfg)
	}
	h, err := azurestorage.Open(c, cfg)
	if err != nil {
		f.Fatal(err)
	}
	return h, w
}

// join starts a worker.
func (f *fleet) join(name string, change func(*azurestorage.Config)) *azurestorage.TaskHub {
	f.Helper()
	h, w := f.hub(name, change)
	ctx, stop := context.WithCancel(chance.With(f.Context(), f.account.Chance(name)))
	m := &member{worker: w, stop: stop, ended: make(chan error, 1)}
	f.running[name] = m
	registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello))
	go func() {
		m.ended <- durable.NewWorker(h, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	return h
}

// leave stops a worker and waits for it.
func (f *fleet) leave(name string) {
	f.Helper()
	m := f.running[name]
	delete(f.running, name)
	m.stop()
	select {
	case err := <-m.ended:
		if err != nil {
			f.Errorf("Run of %s returned %v", name, err)
		}
	case <-m.worker.Dead():
		f.awaitDead(name, m)
	}
}

// kill ends a worker between two requests.
func (f *fleet) kill(name string) {
	f.Helper()
	m := f.running[name]
	delete(f.running, name)
	m.worker.Kill()
	m.stop()
	f.awaitDead(name, m)
}

// awaitDead waits for a dead worker and ignores its error.
func (f *fleet) awaitDead(name string, m *member) {
	f.Helper()
	if err := <-m.ended; err != nil {
		f.Logf("Run of the dead worker %s returned %v", name, err)
	}
}

// receive is one receive request to a control queue.
type receive struct {
	at            time.Duration
	queue, worker string
}

// receives returns the receives from control queues since a time.
func (f *fleet) receives(since time.Duration) []receive {
	var all []receive
	for _, e := range f.account.Log() {
		if e.Operation == "GetMessages" && strings.Contains(e.Path, "-control-") && e.AppliedAt >= since {
			queue := e.Path[strings.Index(e.Path, "-control-")+1:]
			all = append(all, receive{e.AppliedAt, strings.TrimSuffix(queue, "/messages"), e.Worker})
		}
	}
	return all
}

// shares returns how many queues each worker reads. A queue counts for the worker of the last
// receive.
func (f *fleet) shares() map[string]int {
	last := map[string]string{}
	for _, l := range f.receives(0) {
		last[l.queue] = l.worker
	}
	counts := map[string]int{}
	for _, worker := range last {
		counts[worker]++
	}
	return counts
}

func (f *fleet) elapsed() time.Duration { return time.Since(f.began) }

// awaitShares waits until the given workers, and no others, read the queues in equal shares, give or
// take one.
func (f *fleet) awaitShares(limit time.Duration, workers ...string) {
	f.Helper()
	began := time.Now()
	for !even(f.shares(), workers) {
		if time.Since(began) > limit {
			f.Fatalf("after %v the queues are read by %v, want equal shares of %q", limit, f.shares(), workers)
		}
		time.Sleep(100 * time.Millisecond)
	}
	f.Logf("%v: shared by %q after %v", f.config.PartitionManager, workers, time.Since(began))
}

func even(shares map[string]int, workers []string) bool {
	total := 0
	for _, n := range shares {
		total += n
	}
	for _, w := range workers {
		if n := shares[w]; n < total/len(workers) || n > (total+len(workers)-1)/len(workers) {
			return false
		}
	}
	return total == 4 && len(shares) == len(workers)
}

// overlap returns the longest time during which two workers read the same queue. It lasts from the
// first receive of the new reader to the last receive of the old one.
func (f *fleet) overlap() time.Duration {
	first, last := map[string]time.Duration{}, map[string]time.Duration{}
	var queues []string
	for _, l := range f.receives(0) {
		key := l.queue + " " + l.worker
		if _, ok := first[key]; !ok {
			first[key] = l.at
		}
		last[key] = l.at
		queues = append(queues, l.queue)
	}
	slices.Sort(queues)
	longest := time.Duration(0)
	for _, queue := range slices.Compact(queues) {
		for _, a := range []string{"one", "two", "three", "four"} {
			for _, b := range []string{"one", "two", "three", "four"} {
				began, ok := first[queue+" "+b]
				if a != b && ok && began > first[queue+" "+a] {
					longest = max(longest, last[queue+" "+a]-began)
				}
			}
		}
	}
	return longest
}

var managers = []azurestorage.PartitionManager{azurestorage.TablePartitions, azurestorage.SafeBlobLeases, azurestorage.LegacyBlobLeases}

func forManagers(t *testing.T, f func(*fleet)) {
	for _, m := range managers {
		t.Run(m.String(), func(t *testing.T) {
			inFleet(t, azurestorage.Config{PartitionManager: m, MaxQueuePollingInterval: time.Second}, f)
		})
	}
}

func TestPartitions_AreSharedByTheRunningWorkers(t *testing.T) {
	forManagers(t, func(f *fleet) {
		f.join("one", nil)
		f.awaitShares(15*time.Second, "one")
		f.join("two", nil)
		f.awaitShares(60*time.Second, "one", "two")
		f.join("three", nil)
		f.join("four", nil)
		f.awaitShares(60*time.Second, "one", "two", "three", "four")
		f.join("five", nil) // it steals no partition
		before := f.elapsed()
		time.Sleep(60 * time.Second) // the distribution is stable now
		readers := map[string]string{}
		for _, l := range f.receives(before) {
			if other, ok := readers[l.queue]; ok && other != l.worker {
				f.Errorf("%s was read by %s and %s", l.queue, other, l.worker)
			}
			readers[l.queue] = l.worker
		}
		f.leave("five")
		f.leave("four")
		f.awaitShares(15*time.Second, "one", "two", "three")
		f.kill("two")
		f.awaitShares(45*time.Second, "one", "three")
		f.leave("three")
		f.awaitShares(15*time.Second, "one")
	})
}

func TestPartitions_HaveOneReader(t *testing.T) {
	forManagers(t, func(f *fleet) {
		f.join("one", nil)
		f.awaitShares(15*time.Second, "one")
		f.join("two", nil)
		f.awaitShares(60*time.Second, "one", "two")
		time.Sleep(30 * time.Second)
		if got := f.overlap(); got > 0 {
			f.Errorf("two workers read the same queue for %v, want 0", got)
		}
	})
}

// The clocks of the workers differ by up to a minute, which is twice the lease interval.
func TestPartitions_IgnoreTheClocksOfWorkers(t *testing.T) {
	forManagers(t, func(f *fleet) {
		ahead := map[string]time.Duration{"one": 30 * time.Second, "two": -30 * time.Second, "three": -7 * time.Second}
		for _, name := range []string{"one", "two", "three"} {
			f.join(name, nil)
			f.running[name].worker.Skew(ahead[name])
		}
		f.awaitShares(60*time.Second, "one", "two", "three")
		before := f.elapsed()
		time.Sleep(90 * time.Second)
		readers := map[string]string{}
		for _, l := range f.receives(before) {
			if other, ok := readers[l.queue]; ok && other != l.worker {
				f.Fatalf("%s was read by %s and %s", l.queue, other, l.worker)
			}
			readers[l.queue] = l.worker
		}
		f.kill("one") // its leases expire in time although its clock was ahead
		f.awaitShares(45*time.Second, "two", "three")
	})
}

// The clock of the process that deletes the hub differs by twice the lease interval. Export and import
// make the same check.
func TestDelete_IgnoresTheClockOfItsProcess(t *testing.T) {
	forManagers(t, func(f *fleet) {
		deleteBy := func(ahead time.Duration) error {
			admin, w := f.hub("admin", nil)
			w.Skew(ahead)
			return admin.Delete(f.Context(), false)
		}
		f.join("one", nil)
		f.awaitShares(15*time.Second, "one")
		for _, ahead := range []time.Duration{time.Minute, -time.Minute} {
			if err := deleteBy(ahead); !errors.Is(err, provider.ErrHubBusy) {
				f.Errorf("delete of a running hub with a clock that is %v ahead: %v, want ErrHubBusy", ahead, err)
			}
		}
		f.kill("one")
		time.Sleep(45 * time.Second) // its leases have expired
		if err := deleteBy(-time.Minute); err != nil {
			f.Errorf("delete of an idle hub with a clock that is a minute behind: %v", err)
		}
	})
}

// A worker has more leases than it could renew with consecutive requests before they expire.
func TestPartitions_AreKeptWhenResponsesAreSlow(t *testing.T) {
	forManagers(t, func(f *fleet) {
		var log bytes.Buffer
		f.config.PartitionCount, f.config.Logger = 16, slog.New(slog.NewTextHandler(&log, nil))
		f.join("one", nil)
		time.Sleep(time.Minute)
		f.slow(3 * time.Second)
		before := f.elapsed()
		time.Sleep(10 * time.Minute)
		readBy := map[string]bool{}
		for _, l := range f.receives(before) {
			readBy[l.queue] = true
		}
		if len(readBy) != 16 {
			f.Errorf("%d queues are read, want 16", len(readBy))
		}
		f.leave("one")
		if n := strings.Count(log.String(), "partition lost"); n > 0 {
			f.Errorf("%d leases were lost:\n%s", n, log.String())
		}
	})
}

// Many workers acquire the same partitions at the same time. This must not delay the renewal of
// their own leases.
func TestPartitions_OfDeadWorkersAreAcquiredWhenResponsesAreSlow(t *testing.T) {
	var log bytes.Buffer
	cfg := azurestorage.Config{PartitionCount: 16, MaxQueuePollingInterval: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	inFleet(t, cfg, func(f *fleet) {
		for i := range 16 {
			f.join(fmt.Sprint("w", i), nil)
		}
		time.Sleep(2 * time.Minute)
		f.slow(4 * time.Second)
		time.Sleep(time.Minute)
		for i := range 8 {
			f.kill(fmt.Sprint("w", i))
		}
		time.Sleep(3 * time.Minute)
		for i := range 8 {
			f.join(fmt.Sprint("x", i), nil)
		}
		time.Sleep(5 * time.Minute)
		f.slow(0)
	})
	if n := strings.Count(log.String(), "its lease ended before"); n > 0 {
		t.Errorf("%d leases expired before they were renewed", n)
	}
}

func TestPartitions_AreProcessedWithEveryManager(t *testing.T) {
	forManagers(t, func(f *fleet) {
		h := f.join("one", nil)
		f.join("two", nil)
		registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence))
		client := durable.NewClient(h, registry)
		for i := range 8 {
			instance, err := durable.Start(f.Context(), client, helloSequence, durable.Void{}, durable.InstanceID(fmt.Sprintf("hello-%d", i)))
			if err != nil {
				f.Fatal(err)
			}
			if got, err := instance.Wait(f.Context()); err != nil || len(got) != 3 {
				f.Errorf("%s returned %v, %v", instance.ID, got, err)
			}
		}
	})
}

func TestPartitions_WithAnExpiredLeaseAreNotRead(t *testing.T) {
	for _, m := range managers {
		t.Run(m.String(), func(t *testing.T) {
			inFleet(t, azurestorage.Config{PartitionManager: m, MaxQueuePollingInterval: time.Second}, func(f *fleet) {
				f.join("one", nil)
				f.awaitShares(15*time.Second, "one")
				f.running["one"].worker.Freeze(time.Minute)
				f.join("two", nil)
				f.awaitShares(75*time.Second, "two")
				// When it continues, the first worker finds its leases expired.
				time.Sleep(2 * time.Minute)
				f.awaitShares(time.Second, "one", "two")
			})
		})
	}
}

// A machine sleeps, or its wall clock is set, and then it cannot reach its leases. It must stop reading
// as soon as a lease has ended by one clock, because other workers own the partitions then. For the worker,
// a sleep looks like a wall clock that is set forward.
func TestPartitions_AreNotReadWhenTheLeaseHasEndedByOneClock(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*azsim.Worker)
		until  time.Duration // after the change: the last time at which the partitions may be read
	}{
		"a machine that slept":          {func(w *azsim.Worker) { w.Clock().Step(time.Minute) }, 2 * time.Second},
		"a machine that sleeps":         {func(w *azsim.Worker) { w.Sleep(time.Minute) }, time.Minute + 2*time.Second},
		"a wall clock that is set back": {func(w *azsim.Worker) { w.Clock().Step(-time.Hour) }, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			forManagers(t, func(f *fleet) {
				f.join("one", nil)
				f.awaitShares(15*time.Second, "one")
				time.Sleep(12 * time.Second)
				f.refused.Store(func(r azsim.Request) bool { return r.Worker == "one" && r.Service != "queue" })
				changed := f.elapsed()
				tt.change(f.running["one"].worker)
				time.Sleep(2 * time.Minute)
				for _, l := range f.receives(changed + tt.until) {
					f.Fatalf("%v after the change, %s read %s without a lease", l.at-changed, l.worker, l.queue)
				}
				f.refused.Store(func(azsim.Request) bool { return false })
				f.awaitShares(time.Minute, "one")
			})
		})
	}
}

// A clock that is set, or a sleep that is shorter than the lease, costs no partition.
func TestPartitions_AreKeptWhenAClockIsSet(t *testing.T) {
	for name, change := range map[string]func(*azsim.Worker){
		"a short sleep":                    func(w *azsim.Worker) { w.Sleep(8 * time.Second) },
		"a wall clock that is set back":    func(w *azsim.Worker) { w.Clock().Step(-time.Hour) },
		"a wall clock that is set forward": func(w *azsim.Worker) { w.Clock().Step(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			forManagers(t, func(f *fleet) {
				f.join("one", nil)
				f.join("two", nil)
				f.awaitShares(60*time.Second, "one", "two")
				before := f.shares()
				change(f.running["one"].worker)
				time.Sleep(time.Minute)
				f.awaitShares(time.Minute, "one", "two")
				f.Logf("shares were %v and are %v", before, f.shares())
			})
		})
	}
}

func TestPartitions_AreReleasedInTimeWithAStuckSession(t *testing.T) {
	forManagers(t, func(f *fleet) {
		h, _ := f.hub("one", nil)
		ctx, stop := context.WithCancel(f.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		if _, err := durable.NewClient(h, nil).StartByName(ctx, "HelloSequence", nil, durable.InstanceID("stuck")); err != nil {
			f.Fatal(err)
		}
		if _, err := h.NextOrchestration(ctx); err != nil {
			f.Fatal(err)
		}
		begin := time.Now()
		stop()
		if err := <-ended; err != nil {
			f.Error(err)
		}
		if took := time.Since(begin); took < azurestorage.DefaultDrainTimeout || took > azurestorage.DefaultDrainTimeout+time.Second {
			f.Errorf("Run returned after %v, want the drain timeout of %v", took, azurestorage.DefaultDrainTimeout)
		}
		f.join("two", nil)
		f.awaitShares(15*time.Second, "two")
	})
}

func TestPartitions_AreNotReadWhileAnotherManagerIsActive(t *testing.T) {
	for _, active := range managers {
		for _, configured := range managers {
			if active == configured {
				continue
			}
			t.Run(fmt.Sprintf("%v beside %v", configured, active), func(t *testing.T) {
				inFleet(t, azurestorage.Config{PartitionManager: active, MaxQueuePollingInterval: time.Second}, func(f *fleet) {
					f.join("one", nil)
					f.awaitShares(15*time.Second, "one")
					h, _ := f.hub("two", func(c *azurestorage.Config) { c.PartitionManager = configured })
					err := h.Run(f.Context())
					mismatch, ok := errors.AsType[*azurestorage.PartitionManagerError](err)
					if !ok || mismatch.Active != active || mismatch.Configured != configured {
						f.Fatalf("Run returned %v, want a *PartitionManagerError", err)
					}
					for _, l := range f.receives(0) {
						if l.worker == "two" {
							f.Fatalf("%s was read by the rejected worker", l.queue)
						}
					}
					// After the other workers have stopped, their leases are no obstacle.
					f.leave("one")
					f.join("three", func(c *azurestorage.Config) { c.PartitionManager = configured })
					f.awaitShares(90*time.Second, "three")
				})
			})
		}
	}
}

func TestPartitions_CountMustEqualTheConfiguration(t *testing.T) {
	forManagers(t, func(f *fleet) {
		f.join("one", nil)
		f.awaitShares(15*time.Second, "one")
		h, _ := f.hub("two", func(c *azurestorage.Config) { c.PartitionCount = 3 })
		err := h.Run(f.Context())
		mismatch, ok := errors.AsType[*azurestorage.PartitionCountError](err)
		if !ok || mismatch.Configured != 3 || mismatch.Existing != 4 {
			f.Errorf("Run returned %v, want a *PartitionCountError of 3 and 4", err)
		}
	})
}

func TestAppLease_IsHeldByAllWorkersOfOneApp(t *testing.T) {
	inFleet(t, azurestorage.Config{MaxQueuePollingInterval: time.Second}, func(f *fleet) {
		shop := func(c *azurestorage.Config) { c.AppLease.AppName = "shop" }
		f.join("one", shop)
		f.awaitShares(15*time.Second, "one")
		f.join("two", shop)
		f.join("three", func(c *azurestorage.Config) { c.AppLease.AppName = "bank" })
		f.awaitShares(60*time.Second, "one", "two")
		time.Sleep(10 * time.Minute) // the lease is renewed several times
		f.awaitShares(time.Second, "one", "two")
	})
}

func TestAppLease_IsAcquiredByAnotherAppAfterTheFirstStops(t *testing.T) {
	inFleet(t, azurestorage.Config{MaxQueuePollingInterval: time.Second}, func(f *fleet) {
		f.join("one", func(c *azurestorage.Config) { c.AppLease.AppName = "shop" })
		f.awaitShares(15*time.Second, "one")
		f.join("two", func(c *azurestorage.Config) { c.AppLease.AppName = "bank" })
		time.Sleep(time.Second)
		f.leave("one")
		f.awaitShares(azurestorage.DefaultAppLeaseInterval+azurestorage.DefaultAppLeaseAcquireInterval, "two")
	})
}

func TestAppLease_IsAcquiredByMakePrimary(t *testing.T) {
	inFleet(t, azurestorage.Config{MaxQueuePollingInterval: time.Second}, func(f *fleet) {
		f.join("one", func(c *azurestorage.Config) { c.AppLease.AppName = "shop" })
		f.awaitShares(15*time.Second, "one")
		second := f.join("two", func(c *azurestorage.Config) { c.AppLease.AppName = "bank" })
		time.Sleep(time.Second)
		if err := second.MakePrimary(f.Context()); err != nil {
			f.Fatal(err)
		}
		f.awaitShares(time.Minute, "two")
		time.Sleep(10 * time.Minute)
		f.awaitShares(time.Second, "two")
	})
}

func TestAppLease_CanBeDisabled(t *testing.T) {
	inFleet(t, azurestorage.Config{MaxQueuePollingInterval: time.Second}, func(f *fleet) {
		off := func(name string) func(*azurestorage.Config) {
			return func(c *azurestorage.Config) { c.AppLease = azurestorage.AppLease{Disabled: true, AppName: name} }
		}
		f.join("one", off("shop"))
		second := f.join("two", off("bank"))
		f.awaitShares(60*time.Second, "one", "two")
		if err := second.MakePrimary(f.Context()); err == nil {
			f.Error("MakePrimary succeeded without an app lease")
		}
	})
}
