package partitionlog_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func greet(_ context.Context, name string) (string, error) { return "Hello " + name + "!", nil }

func hello(ctx *durable.Context, _ durable.Void) (all []string, err error) {
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		greeting, err := durable.CallActivity(ctx, greet, city).Await()
		if err != nil {
			return nil, err
		}
		all = append(all, greeting)
	}
	return all, nil
}

var greetings = durable.NewRegistry(durable.Orchestrator("Hello", hello), durable.Activity("Greet", greet))

// simulated is a hub on an account in memory, in virtual time.
type simulated struct {
	*testing.T
	account *azsim.Account
	counted int // number of log entries already counted
}

func (s *simulated) open(name string) (*partitionlog.Hub, *azsim.Worker) {
	s.Helper()
	return s.openWith(name, partitionlog.Config{})
}

// openWith is open with a configuration.
func (s *simulated) openWith(name string, cfg partitionlog.Config) (*partitionlog.Hub, *azsim.Worker) {
	s.Helper()
	w := s.account.Worker(name)
	cfg.WorkerID = name
	return s.openBy(w, cfg), w
}

// openBy is openWith for a process whose requests go through transport.
func (s *simulated) openBy(transport policy.Transporter, cfg partitionlog.Config) *partitionlog.Hub {
	s.Helper()
	c, err := azurestorage.ParseConnectionString(s.account.ConnectionString())
	if err != nil {
		s.Fatal(err)
	}
	cfg.TaskHub, cfg.Transport, cfg.Logger = "Sim", transport, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	h, err := partitionlog.Open(c, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return h
}

// work runs a worker until stop is called.
func (s *simulated) work(h *partitionlog.Hub) (stop func()) { return s.workAs(h, greetings) }

// workAs is work with the given functions.
func (s *simulated) workAs(h *partitionlog.Hub, functions *durable.Registry) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		if err := durable.NewWorker(h, functions, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx); err != nil {
			s.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
		_ = h.Close() // a dead process cannot release anything
	}
}

func (s *simulated) greet(c *durable.Client, times int) {
	s.Helper()
	var all sync.WaitGroup
	for range times {
		all.Go(func() {
			i, err := durable.Start(s.Context(), c, hello, durable.Void{})
			if err == nil {
				_, err = i.Wait(s.Context())
			}
			if err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
}

// requests returns the number of requests since the last call: to logs, to mailboxes and to other
// blobs, by kind.
func (s *simulated) requests() map[string]int {
	counts := make(map[string]int)
	log := s.account.Log()
	for _, e := range log[s.counted:] {
		of := "other"
		for _, kind := range []string{"log", "mail", "workers"} {
			if strings.Contains(e.Path, "/"+kind) {
				of = kind
			}
		}
		counts[e.Operation+" "+of]++
	}
	s.counted = len(log)
	return counts
}

func inBubble(t *testing.T, f func(*simulated)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{T: t, account: azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})}
		defer s.account.End() // after the last worker has stopped
		f(s)
	})
}

// inOrder runs f in a bubble like inBubble, but not in parallel with other tests; f sets the
// account.
func inOrder(t *testing.T, f func(*simulated)) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{T: t}
		f(s)
		s.account.Wait()
	})
}

// An idle worker without neighbors, with four partitions and default settings, makes at most 60
// requests per minute, and its heartbeats leave no copies. A sequence of three activities makes few
// appends, alone and among many others.
func TestHub_MakesNoMoreRequestsThanDocumented(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		stop := s.work(h)
		defer stop()
		c := durable.NewClient(h, greetings)
		s.greet(c, 16)
		time.Sleep(6 * time.Minute) // until the worker has swept
		s.requests()

		for range 10 {
			time.Sleep(time.Minute)
			counts, all := s.requests(), 0
			for kind, n := range counts {
				all += n
				if strings.HasPrefix(kind, "Put") || strings.HasPrefix(kind, "Create") || strings.HasPrefix(kind, "Set") {
					s.Errorf("an idle minute has %d requests of kind %s, which leave copies", n, kind)
				}
			}
			most := map[string]int{"GetBlob mail": 9, "RenewLease log": 25, "AppendBlock workers": 13, "ListBlobs other": 13}
			for kind, n := range counts {
				if n > most[kind] {
					s.Errorf("an idle minute has %d requests of kind %s, want at most %d", n, kind, most[kind])
				}
			}
			if all > 60 || all < 30 {
				s.Errorf("an idle minute has %d requests, want 1 to 60: %v", all, counts)
			}
		}
		appends := func(all map[string]int) (n int) {
			for kind, count := range all {
				if strings.HasPrefix(kind, "AppendBlock") && kind != "AppendBlock workers" {
					n += count
				}
			}
			return n
		}
		s.greet(c, 1)
		if n := appends(s.requests()); n > 6 {
			s.Errorf("a single sequence took %d appends, want at most 6", n)
		}
		const many = 640
		s.greet(c, many)
		if n := appends(s.requests()); n > many/2 {
			s.Errorf("%d sequences took %d appends, want at most half as many", many, n)
		} else {
			s.Logf("%d parallel sequences took %d appends", many, n)
		}
	})
}

// When an owner dies, other workers continue with its partitions soon after its leases expire.
func TestHub_ContinuesSoonAfterAnOwnerDied(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, w := s.open("a")
		stop := s.work(h)
		defer stop()
		client, _ := s.open("client")
		defer func() { _ = client.Close() }()
		c := durable.NewClient(client, greetings)
		s.greet(c, 16)
		w.Kill()
		died := time.Now()
		h, _ = s.open("b")
		stopOther := s.work(h)
		defer stopOther()
		s.greet(c, 16)
		if took := time.Since(died); took > partitionlog.DefaultLeaseInterval+3*time.Second {
			s.Errorf("other workers continued after %v, want at most the lease duration plus 3s", took)
		}
	})
}

// When a worker stops, other workers continue immediately. A new worker gets its share.
func TestHub_HandsPartitionsOverWithoutAPause(t *testing.T) {
	inBubble(t, func(s *simulated) {
		a, _ := s.open("a")
		stop := s.work(a)
		c := durable.NewClient(a, greetings)
		s.greet(c, 16)
		b, _ := s.open("b")
		stopOther := s.work(b)
		defer stopOther()
		time.Sleep(30 * time.Second)
		load, err := b.Load(s.Context())
		if err != nil || load.Workers != 2 {
			s.Errorf("the load is %+v, %v; want 2 workers", load, err)
		}
		began := time.Now()
		s.greet(c, 64)
		if took := time.Since(began); took > 3*time.Second {
			s.Errorf("with two workers, 64 sequences took %v", took)
		}
		stop()
		began = time.Now()
		s.greet(durable.NewClient(b, greetings), 64)
		if took := time.Since(began); took > 5*time.Second {
			s.Errorf("after a worker had stopped, 64 sequences took %v", took)
		}
	})
}

// withoutOwner returns, for each handover, the time in which the partition had no owner.
func (s *simulated) withoutOwner() (all []time.Duration) {
	free := make(map[string]time.Duration) // time of the release, by path
	for _, e := range s.account.Log() {
		switch given, is := free[e.Path]; {
		case e.Operation == "ReleaseLease" && e.Status == http.StatusOK:
			free[e.Path] = e.AppliedAt
		case e.Operation == "AcquireLease" && e.Status == http.StatusCreated && is:
			all = append(all, e.AppliedAt-given)
			delete(free, e.Path)
		}
	}
	return all
}

// A partition that a worker releases, because it stops or another worker has started, has no owner
// for at most a second. That holds even if no client needs the partition.
func TestHub_HandsPartitionsOverWithinASecond(t *testing.T) {
	inBubble(t, func(s *simulated) {
		begin := func(name string) (stop func()) {
			h, _ := s.open(name)
			stop = s.work(h)
			time.Sleep(30*time.Second + 300*time.Millisecond) // shifts the polls of the workers against each other
			return stop
		}
		var stops []func()
		for _, name := range []string{"a", "b", "c"} {
			stops = append(stops, begin(name))
		}
		for _, stop := range stops[:2] {
			stop()
			time.Sleep(30 * time.Second)
		}
		s.wantOwners(6)
		stops[2]()
	})
}

// nap takes three seconds.
func nap(context.Context, int) (int, error) {
	time.Sleep(3 * time.Second)
	return 0, nil
}

func naps(ctx *durable.Context, n int) (none durable.Void, err error) {
	for range n {
		if _, err := durable.CallActivity(ctx, nap, 0).Await(); err != nil {
			return none, err
		}
	}
	return none, nil
}

var napping = durable.NewRegistry(durable.Orchestrator("Naps", naps), durable.Activity("Nap", nap))

// A busy worker completes its work in flight separately for each partition. The next owner acquires
// each partition right after that, even if the first worker is stopped meanwhile.
func TestHub_HandsPartitionsOverWithinASecondWhileItIsBusy(t *testing.T) {
	for name, stopAfter := range map[string]time.Duration{"": 0, ", stopped when another worker starts": 50 * time.Millisecond, ", stopped during the handover": time.Second} {
		t.Run("busy worker"+name, func(t *testing.T) {
			if stopAfter < time.Second {
				testshare.SkipInShortRuns(t)
			}
			inBubble(t, func(s *simulated) {
				a, _ := s.openWith("z", partitionlog.Config{PartitionCount: 8})
				stop := s.workAs(a, napping)
				time.Sleep(20 * time.Second)
				for range 40 {
					if _, err := durable.Start(s.Context(), durable.NewClient(a, napping), naps, 30); err != nil {
						s.Fatal(err)
					}
				}
				time.Sleep(10 * time.Second)
				b, _ := s.openWith("b", partitionlog.Config{PartitionCount: 8})
				stopOther := s.workAs(b, napping)
				if stopAfter > 0 {
					time.Sleep(stopAfter)
					stop()
				}
				time.Sleep(time.Minute)
				if stopAfter > 0 {
					s.wantOwners(8)
				} else {
					s.wantOwners(4)
					stop()
				}
				stopOther()
			})
		})
	}
}

// wantOwners reports partitions that had no owner for too long, and too few handovers.
func (s *simulated) wantOwners(least int) {
	s.Helper()
	all := s.withoutOwner()
	if len(all) < least {
		s.Errorf("got %d handovers, want at least %d", len(all), least)
	}
	for _, d := range all {
		if d > time.Second {
			s.Errorf("a partition had no owner for %v", d)
		}
	}
}

// slowBase is a storage that takes ten minutes to store a base file.
type slowBase struct {
	policy.Transporter
	begun atomic.Bool
}

func (b *slowBase) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/base-") {
		b.begun.Store(true)
		select {
		case <-time.After(10 * time.Minute): // real time: the test ends the request earlier
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return b.Transporter.Do(r)
}

// writing returns a worker of a hub with one partition whose base is being written.
func (s *simulated) writing(name string) (w *azsim.Worker, stop func()) {
	s.Helper()
	w = s.account.Worker(name)
	slow := &slowBase{Transporter: w}
	h := s.openBy(slow, partitionlog.Config{WorkerID: name, PartitionCount: 1})
	stop = s.work(h)
	long := `"` + strings.Repeat("0123456789abcdef", 16<<10) + `"`
	for range 40 {
		if _, err := durable.NewClient(h, greetings).StartByName(s.Context(), "Nobody", json.RawMessage(long)); err != nil {
			s.Fatal(err)
		}
	}
	if !slow.begun.Load() {
		s.Fatal("no base write is in flight")
	}
	return w, stop
}

// A worker that releases a partition does not wait for base writes: the log has the same records.
func TestHub_HandsPartitionsOverWhileTheBaseIsWritten(t *testing.T) {
	inBubble(t, func(s *simulated) {
		_, stop := s.writing("a")
		began := time.Now()
		stop()
		b, _ := s.openWith("b", partitionlog.Config{PartitionCount: 1})
		stopOther := s.work(b)
		defer stopOther()
		s.greet(durable.NewClient(b, greetings), 1)
		if took := time.Since(began); took > 10*time.Second {
			s.Errorf("a sequence took %v after a worker had stopped", took)
		}
	})
}

// The same holds for a worker that loses a partition.
func TestHub_LosesPartitionsWhileTheBaseIsWritten(t *testing.T) {
	inBubble(t, func(s *simulated) {
		w, stop := s.writing("a")
		w.Freeze(2 * partitionlog.DefaultLeaseInterval)
		b, _ := s.openWith("b", partitionlog.Config{PartitionCount: 1})
		stopOther := s.work(b)
		defer stopOther()
		s.greet(durable.NewClient(b, greetings), 1) // after the other worker's lease has expired
		time.Sleep(2 * partitionlog.DefaultLeaseInterval)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 10*time.Second {
			s.Errorf("a worker that had lost its partition took %v to stop", took)
		}
	})
}

// A process acquires a partition, and closes its hub, while a read of the partition's log gets no
// response.
func TestHub_AcquiresAndClosesDuringASlowRead(t *testing.T) {
	inOrder(t, func(s *simulated) {
		var slow, begun atomic.Bool
		s.account = azsim.New(azsim.Config{
			Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Delay: func(r azsim.Request, _ int) time.Duration {
				if r.Operation == "GetBlob" && strings.Contains(r.Path, "/log-") && slow.CompareAndSwap(true, false) {
					begun.Store(true)
					return 30 * time.Second
				}
				return 0
			},
		})
		client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
		if err := errors.Join(startHello(s.Context(), client, "a"), client.Close()); err != nil {
			s.Fatal(err)
		}
		h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		slow.Store(true)
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = h.Instance(s.Context(), "a", provider.Fetch{}) // the hub is closed meanwhile
		}()
		time.Sleep(time.Second)
		if !begun.Load() {
			s.Fatal("no read is in flight")
		}
		within := func(what string, call func() error) {
			s.Helper()
			began := time.Now()
			if err := call(); err != nil {
				s.Error(err)
			}
			if took := time.Since(began); took > time.Second {
				s.Errorf("%s took %v during a slow read, want at most a second", what, took)
			}
		}
		within("the acquisition of the partition", func() error { return h.SendDirectly(s.Context(), event("a")) })
		within("Close", h.Close)
		<-read
	})
}

// Mail that was sent before a worker started is dispatched together with the start, not later.
func TestHub_ReceivesMailBeforeItDispatches(t *testing.T) {
	inBubble(t, func(s *simulated) {
		client, _ := s.open("client")
		instance := history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
		if err := client.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until the client has released the partition
		for range 5 {
			if err := client.Send(s.Context(), provider.TaskMessage{Event: &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E"}, Target: instance}); err != nil {
				s.Fatal(err)
			}
		}
		h, _ := s.open("w")
		ctx, cancel := context.WithCancel(s.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		item, err := h.NextOrchestration(ctx)
		if err != nil || len(item.Messages) != 6 {
			s.Errorf("dispatched: %+v, %v; want the start and five events", item, err)
		}
		if err := item.Session.Release(ctx); err != nil {
			s.Error(err)
		}
		cancel()
		if err := errors.Join(<-ended, h.Close(), client.Close()); err != nil {
			s.Error(err)
		}
	})
}

// A client never reads an older state than before, even if its process acquires the partition in
// between. At that moment the log contains changes that the new owner does not know yet.
func TestHub_ReadsNothingOlderWhileItAcquiresAPartition(t *testing.T) {
	for seed := range uint64(testshare.Amount(200, 15)) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{T: t, account: azsim.New(azsim.Config{Seed: seed, MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond})}
			defer s.account.End()
			h, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
			for round := range 3 {
				var all sync.WaitGroup
				for i := range 8 {
					all.Go(func() {
						id := fmt.Sprint(round, "-", i)
						instance := history.OrchestrationInstance{InstanceID: id, ExecutionID: "e"}
						start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
						time.Sleep(time.Duration(i) * 23 * time.Millisecond)
						if err := h.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
							s.Error(err)
						}
						if _, err := h.Instance(s.Context(), id, provider.Fetch{}); err != nil {
							s.Errorf("seed %d: %s was started, and then: %v", seed, id, err)
						}
					})
				}
				all.Wait()
				time.Sleep(10 * time.Second) // until the client has released the partition
			}
			if err := h.Close(); err != nil {
				s.Error(err)
			}
		})
	}
}

// Export does not create a hub.
func TestExport_FailsWithoutAHub(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		if err := h.Export(s.Context(), nil, provider.ExportOptions{}); !errors.Is(err, partitionlog.ErrNoHub) {
			s.Errorf("Export: %v, want %v", err, partitionlog.ErrNoHub)
		}
		if len(s.account.Blobs()) > 0 {
			s.Error("Export has created a hub")
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}

// Send returns when the message is durable.
func TestSend_ReturnsWhenTheMailboxHasTheMessage(t *testing.T) {
	inBubble(t, func(s *simulated) {
		client, w := s.open("client")
		send := func() {
			event := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E"}
			if err := client.Send(s.Context(), provider.TaskMessage{Event: event, Target: history.OrchestrationInstance{InstanceID: "a"}}); err != nil {
				s.Error(err)
			}
		}
		send() // creates the hub and the mailbox
		const cutOff = 3 * time.Second
		w.Freeze(cutOff)
		began := time.Now()
		send()
		if took := time.Since(began); took < cutOff {
			s.Errorf("Send returned after %v, before anything had reached the mailbox", took)
		}
		time.Sleep(2 * cutOff) // a request that Send did not wait for must end in the bubble
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A partition sends mail to another one, which this process then acquires. The mail must be
// received before messages that are sent directly.
func TestMail_IsNotOvertakenByDirectMessages(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		took, err := h.MailThenDirect(s.Context())
		if err != nil || took != 2 {
			s.Errorf("received %d messages, %v; want the mailed one and the direct one", took, err)
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}
