package partitionlog_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	"golang.org/x/sync/errgroup"
)

var figures = flag.Int("figures", 0, "how many orchestrations each worker gets in the figures of the standard account; 0 means a sample")

// CPU times of a step, as BenchmarkCPU measures them. In virtual time the code itself takes no
// time.
const (
	startCPU    = 70 * time.Microsecond
	episodeCPU  = 60 * time.Microsecond // replay and commit
	activityCPU = 60 * time.Microsecond
	requestCPU  = 450 * time.Microsecond
)

// cores are the CPU cores of a worker in virtual time.
type cores chan struct{}

// coresOfWorker is the number of cores of a worker, as in an instance of plan EP2.
const coresOfWorker = 2

// use occupies one core for d.
func (c cores) use(d time.Duration) {
	c <- struct{}{}
	time.Sleep(d) // real time: every caller runs in a bubble
	<-c
}

// busyTransport occupies a core for each request.
type busyTransport struct {
	next  policy.Transporter
	cores cores
}

func (t busyTransport) Do(r *http.Request) (*http.Response, error) {
	t.cores.use(requestCPU)
	return t.next.Do(r)
}

// busyHub is a hub whose steps occupy cores.
type busyHub struct {
	provider.Provider
	cores cores
	ended func(instanceID string)
}

func (h busyHub) StartInstance(ctx context.Context, m provider.TaskMessage, refuse []history.RuntimeStatus) error {
	h.cores.use(startCPU)
	return h.Provider.StartInstance(ctx, m, refuse)
}

func (h busyHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item, err := h.Provider.NextOrchestration(ctx)
	if err == nil {
		item.Session = busySession{item.Session, h, item.Instance.InstanceID}
	}
	return item, err
}

func (h busyHub) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	item, err := h.Provider.NextActivity(ctx)
	if err == nil {
		item.Lock = busyActivity{item.Lock, h.cores}
	}
	return item, err
}

type busySession struct {
	provider.Session
	hub        busyHub
	instanceID string
}

func (s busySession) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	s.hub.cores.use(episodeCPU)
	err := s.Session.Commit(ctx, cp)
	if ends := func(e history.Event) bool { return e.Type() == history.TypeExecutionCompleted }; err == nil && slices.ContainsFunc(cp.NewEvents, ends) {
		s.hub.ended(s.instanceID)
	}
	return err
}

type busyActivity struct {
	provider.ActivityLock
	cores cores
}

func (a busyActivity) Complete(ctx context.Context, result history.Event) error {
	a.cores.use(activityCPU)
	return a.ActivityLock.Complete(ctx, result)
}

// helloCities5 calls five activities in a row: ten events, as Netherite's documentation counts
// them.
func helloCities5(ctx *durable.Context, _ durable.Void) (all []string, err error) {
	for _, city := range []string{"Tokyo", "Seattle", "London", "Amsterdam", "Seoul"} {
		greeting, err := durable.CallActivity(ctx, greet, city).Await()
		if err != nil {
			return nil, err
		}
		all = append(all, greeting)
	}
	return all, nil
}

const eventsOfHello = 10

var cities = durable.NewRegistry(durable.Orchestrator("HelloCities5", helloCities5), durable.Activity("Greet", greet))

// A figure is the result of a measurement.
type figure struct {
	events   float64        // per second, from the first start to the last end
	requests map[string]int // requests by kind while the orchestrations ran
	refused  int            // number of refused requests
}

// opener opens a hub with the given number of partitions for a worker.
type opener func(c azurestorage.Connection, name string, transport policy.Transporter, partitions int) (provider.Provider, error)

func openLog(c azurestorage.Connection, name string, transport policy.Transporter, partitions int) (provider.Provider, error) {
	return partitionlog.Open(c, partitionlog.Config{
		TaskHub: "Sim", PartitionCount: partitions, WorkerID: name, Transport: transport, Logger: slog.New(slog.DiscardHandler),
	})
}

func openQueues(c azurestorage.Connection, name string, transport policy.Transporter, partitions int) (provider.Provider, error) {
	return azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Sim", PartitionCount: partitions, WorkerID: name, Transport: transport, Logger: slog.New(slog.DiscardHandler),
	})
}

// measure runs the benchmark on a standard account in virtual time. Each worker starts
// the number each of orchestrations at once, in partitions of all workers.
func measure(t *testing.T, open opener, partitions, workers, each int) (f figure) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var standard azsim.Standard
		account := azsim.New(azsim.Config{Seed: 1, Delay: standard.Delay, Decide: standard.Decide})
		c, err := azurestorage.ParseConnectionString(account.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex // protects left
		left := make(map[string]bool)
		var over chan struct{}
		var clients []*durable.Client
		for n := range workers {
			name := fmt.Sprint("w", n)
			cores := make(cores, coresOfWorker)
			p, err := open(c, name, busyTransport{account.Worker(name), cores}, partitions)
			if err != nil {
				t.Fatal(err)
			}
			hub := busyHub{p, cores, func(id string) {
				mu.Lock()
				defer mu.Unlock()
				if delete(left, id); len(left) == 0 {
					close(over)
				}
			}}
			clients = append(clients, durable.NewClient(hub, cities))
			running.Go(func() {
				cfg := durable.Config{
					MaxConcurrentOrchestrators: durable.DefaultMaxConcurrentOrchestratorsPerCore * coresOfWorker,
					MaxConcurrentActivities:    durable.DefaultMaxConcurrentActivitiesPerCore * coresOfWorker,
					Logger:                     slog.New(slog.DiscardHandler),
				}
				if err := durable.NewWorker(hub, cities, cfg).Run(ctx); err != nil {
					t.Error(err)
				}
				if c, ok := p.(interface{ Close() error }); ok {
					_ = c.Close() // after the measurement
				}
			})
		}
		time.Sleep(3 * time.Minute) // until the partitions are balanced
		hello := func(n int) {
			over = make(chan struct{})
			var starts errgroup.Group
			starts.SetLimit(100 * workers)
			for i := range n * workers {
				left[fmt.Sprintf("hello %d of %d", i, n)] = true
			}
			for i := range n * workers {
				starts.Go(func() error {
					_, err := durable.Start(ctx, clients[i%workers], helloCities5, durable.Void{}, durable.InstanceID(fmt.Sprintf("hello %d of %d", i, n)))
					return err
				})
			}
			if err := starts.Wait(); err != nil {
				t.Error(err)
			}
			select {
			case <-over:
			case <-time.After(time.Hour):
				t.Errorf("%d of %d orchestrations have not ended after an hour", len(left), n*workers)
			}
		}
		hello(64)
		before, refused := len(account.Log()), standard.Refused()
		began := time.Now()
		hello(each)
		f = figure{
			events: eventsOfHello * float64(each*workers) / time.Since(began).Seconds(), refused: standard.Refused() - refused,
			requests: make(map[string]int),
		}
		for _, e := range account.Log()[before:] {
			f.requests[e.Operation]++
		}
		stop()
		running.Wait()
		account.Wait()
	})
	return f
}

// perMillion returns the requests of a million orchestrations, in millions, by kind.
func (f figure) perMillion(orchestrations int) string {
	var all []string
	sum := 0
	for _, kind := range slices.Sorted(maps.Keys(f.requests)) {
		sum += f.requests[kind]
		all = append(all, fmt.Sprintf("%s %.3f", kind, float64(f.requests[kind])/float64(orchestrations)))
	}
	return fmt.Sprintf("%.2f: %s", float64(sum)/float64(orchestrations), strings.Join(all, ", "))
}

// log logs a figure.
func (f figure) log(t *testing.T, what string, orchestrations int) {
	t.Helper()
	t.Logf("%s: %.0f events/s, %d requests were refused; a million orchestrations take millions of requests: %s",
		what, f.events, f.refused, f.perMillion(orchestrations))
}

// The test runs orchestrations on a standard account. One worker with two cores and two partitions
// must have twice the throughput that Netherite's documentation states. Several workers must scale
// almost linearly. An orchestration must need fewer requests than with queues and tables. DESIGN.md
// has the results of -figures=1000.
func TestFigures_OnAStandardAccount(t *testing.T) {
	t.Parallel()
	testshare.SkipInShortRuns(t)
	const netherite = 1708
	n, workers, linear, reads := 400, 3, 0.6, 0.75 // the start-up phase weighs heavily in a short run
	if *figures > 0 {
		n, workers, linear, reads = *figures, 8, 0.8, 1.5
		measure(t, openQueues, 4, 1, n).log(t, "queues and tables, 4 control queues, 1 worker", n)
	}
	two := measure(t, openLog, 2, 1, n)
	two.log(t, "2 partitions, 1 worker", n)
	if two.events < 2*netherite {
		t.Errorf("got %.0f events/s, want at least twice %d", two.events, netherite)
	}
	if two.refused > 0 {
		t.Errorf("%d requests exceeded a limit of the account", two.refused)
	}
	if of := two.requests["AppendBlock"]; of > n/3 {
		t.Errorf("%d orchestrations took %d appends, want at most a third as many", n, of)
	}
	one := measure(t, openLog, 4, 1, n)
	one.log(t, "4 partitions, 1 worker", n)
	all := measure(t, openLog, 4*workers, workers, n)
	all.log(t, fmt.Sprintf("%d partitions, %d workers", 4*workers, workers), n*workers)
	if of := float64(all.requests["GetBlob"]) / float64(n*workers); of > reads { // most are polls for the answer to a start
		t.Errorf("with %d workers an orchestration took %.2f reads, want at most %.2f", workers, of, reads)
	}
	share := all.events / one.events / float64(workers)
	t.Logf("%d workers have %.0f %% of %d times the throughput of one", workers, 100*share, workers)
	if share < linear {
		t.Errorf("%d workers have %.0f %% of %d times the throughput of one, want %.0f %%", workers, 100*share, workers, 100*linear)
	}
}
