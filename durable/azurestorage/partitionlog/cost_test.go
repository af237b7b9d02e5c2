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
	counted int // of the account's log
}

func (s *simulated) open(name string) (*partitionlog.Hub, *azsim.Worker) {
	s.Helper()
	return s.openWith(name, partitionlog.Config{})
}

// openWith is open with some configuration.
func (s *simulated) openWith(name string, cfg partitionlog.Config) (*partitionlog.Hub, *azsim.Worker) {
	s.Helper()
	w := s.account.Worker(name)
	cfg.WorkerID = name
	return s.openBy(w, cfg), w
}

// openBy is openWith for a process whose requests transport carries.
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

// workAs is work of some functions.
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
		_ = h.Close() // a dead process cannot let go of anything
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

// requests returns how many requests of each kind there were since the last call: to logs,
// to mailboxes and to the rest.
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
		defer s.account.Wait() // when no worker begins anything any more
		f(s)
	})
}

// inOrder is inBubble in the goroutine of the test.
func inOrder(t *testing.T, f func(*simulated)) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{T: t}
		f(s)
		s.account.Wait()
	})
}

// A worker alone that is at rest, with four partitions and default settings, makes at most 60 requests in
// each minute, and its heartbeats leave no copies. A sequence of three activities makes few appends, alone and
// beside many others.
func TestHub_AsksTheStorageForNoMoreThanItsDocumentationSays(t *testing.T) {
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
					s.Errorf("an idle minute has %d of %s, which leave copies", n, kind)
				}
			}
			most := map[string]int{"GetBlob mail": 9, "RenewLease log": 25, "AppendBlock workers": 13, "ListBlobs other": 13}
			for kind, n := range counts {
				if n > most[kind] {
					s.Errorf("an idle minute has %d of %s, want at most %d", n, kind, most[kind])
				}
			}
			if all > 60 || all < 30 {
				s.Errorf("an idle minute has %d requests, want at most 60 and some: %v", all, counts)
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
			s.Errorf("a sequence alone took %d appends, want 6 at most", n)
		}
		const many = 640
		s.greet(c, many)
		if n := appends(s.requests()); n > many/2 {
			s.Errorf("%d sequences took %d appends, want half as many at most", many, n)
		} else {
			s.Logf("%d sequences side by side took %d appends", many, n)
		}
	})
}

// When the process of an owner dies, others go on with its partitions as soon as its leases
// have run out.
func TestHub_GoesOnSoonAfterAnOwnerDied(t *testing.T) {
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
			s.Errorf("it took %v until others went on, want the lease and 3s at most", took)
		}
	})
}

// A worker that stops lets others go on at once, and one that comes gets its share.
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

// withoutOwner returns how long partitions had no owner between who gave them up and who
// took them.
func (s *simulated) withoutOwner() (all []time.Duration) {
	free := make(map[string]time.Duration) // since when, by what is leased
	for _, e := range s.account.Log() {
		switch given, is := free[e.Path]; {
		case e.Operation == "ReleaseLease" && e.Status == http.StatusOK:
			free[e.Path] = e.At
		case e.Operation == "AcquireLease" && e.Status == http.StatusCreated && is:
			all = append(all, e.At-given)
			delete(free, e.Path)
		}
	}
	return all
}

// A partition that a worker gives up, since another one has come or it stops, is without an
// owner for a second at most, though no client asks for it.
func TestHub_HandsPartitionsOverWithinASecond(t *testing.T) {
	inBubble(t, func(s *simulated) {
		begin := func(name string) (stop func()) {
			h, _ := s.open(name)
			stop = s.work(h)
			time.Sleep(30*time.Second + 300*time.Millisecond) // they do not all look at the same time
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

// A worker that is busy brings to its end what it has in hand, for each partition by itself,
// and another one has that right after it, also if the first one is stopped meanwhile.
func TestHub_HandsPartitionsOverWithinASecondWhileItIsBusy(t *testing.T) {
	for name, stopAfter := range map[string]time.Duration{"": 0, "and is stopped when another one comes": 50 * time.Millisecond, "and is stopped in the middle": time.Second} {
		t.Run("it works "+name, func(t *testing.T) {
			if stopAfter < time.Second {
				testshare.LeaveToFull(t)
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

// wantOwners reports partitions that were handed over with too long a pause, and whether there
// were fewer of them than expected.
func (s *simulated) wantOwners(least int) {
	s.Helper()
	all := s.withoutOwner()
	if len(all) < least {
		s.Errorf("%d partitions were handed over, want at least %d", len(all), least)
	}
	for _, d := range all {
		if d > time.Second {
			s.Errorf("a partition had no owner for %v", d)
		}
	}
}

// slowBase is a storage that takes ten minutes to store a file of a base.
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
		s.Fatal("nothing is on its way to the base")
	}
	return w, stop
}

// Who gives a partition up does not wait for what is on its way to the base: the log has it.
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

// Nor does who loses it.
func TestHub_LosesPartitionsWhileTheBaseIsWritten(t *testing.T) {
	inBubble(t, func(s *simulated) {
		w, stop := s.writing("a")
		w.Freeze(2 * partitionlog.DefaultLeaseInterval)
		b, _ := s.openWith("b", partitionlog.Config{PartitionCount: 1})
		stopOther := s.work(b)
		defer stopOther()
		s.greet(durable.NewClient(b, greetings), 1) // once the lease of the other one has run out
		time.Sleep(2 * partitionlog.DefaultLeaseInterval)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 10*time.Second {
			s.Errorf("a worker that had lost its partition took %v to stop", took)
		}
	})
}

// What was sent before a worker came counts from the beginning: it is dispatched with the
// start, and does not come later.
func TestHub_TakesTheMailBeforeItDispatches(t *testing.T) {
	inBubble(t, func(s *simulated) {
		client, _ := s.open("client")
		instance := history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
		if err := client.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until the client has given the partition up
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

// What a client was told is there when it asks next, also if its process takes the partition
// at that moment: the log then has what the partition's new owner does not know yet.
func TestHub_ReadsNothingOlderThanWhatItSaidWhileItTakesAPartition(t *testing.T) {
	for seed := range uint64(testshare.Amount(200, 15)) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{T: t, account: azsim.New(azsim.Config{Seed: seed, MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond})}
			defer s.account.Wait()
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
				time.Sleep(10 * time.Second) // until the client has given the partition up
			}
			if err := h.Close(); err != nil {
				s.Error(err)
			}
		})
	}
}

// A hub that does not exist is not made by who wants to copy it.
func TestExport_SaysThatThereIsNoHub(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		if err := h.Export(s.Context(), nil, provider.ExportOptions{}); !errors.Is(err, partitionlog.ErrNoHub) {
			s.Errorf("Export: %v, want %v", err, partitionlog.ErrNoHub)
		}
		if len(s.account.Blobs()) > 0 {
			s.Error("there is a hub now")
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A message is safe when Send returns.
func TestSend_ReturnsWhenTheMailboxHasTheMessage(t *testing.T) {
	inBubble(t, func(s *simulated) {
		client, w := s.open("client")
		send := func() {
			event := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E"}
			if err := client.Send(s.Context(), provider.TaskMessage{Event: event, Target: history.OrchestrationInstance{InstanceID: "a"}}); err != nil {
				s.Error(err)
			}
		}
		send() // makes the hub and the mailbox
		const cutOff = 3 * time.Second
		w.Freeze(cutOff)
		began := time.Now()
		send()
		if took := time.Since(began); took < cutOff {
			s.Errorf("Send returned after %v, when nothing had reached the mailbox", took)
		}
		time.Sleep(2 * cutOff) // a request that Send did not wait for must end in the bubble
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	})
}

// What a partition has sent by mail comes before what it sends directly, since the other
// partition has come to the same process meanwhile.
func TestMail_IsNotPassedByWhatIsSentDirectly(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		took, err := h.MailThenDirect(s.Context())
		if err != nil || took != 2 {
			s.Errorf("%d messages were received, %v; want the one in the mailbox and the one that was sent directly", took, err)
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}
