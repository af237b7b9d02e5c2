package sim_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// azure is a hub in a simulated storage account.
type azure struct {
	account *azsim.Account
	cfg     azurestorage.Config
	client  *azurestorage.TaskHub
	watch   blobWatch
	// quiet means that no faults are injected.
	quiet bool
	// askAfter is the time for which a worker waits before it asks for the next instance, like a busy process.
	askAfter time.Duration
	// inside holds the worker processes through which clients send requests. It is nil unless plan.Inside is
	// set.
	inside *insiders
	// strangers counts the undecodable messages that have been sent.
	strangers atomic.Int32
}

// newAzure returns the platform for a plan. decide injects faults into requests; nil means the faults of the
// plan.
func newAzure(p *sim.Plan, decide func(azsim.Request) azsim.Fault, logger *slog.Logger) (*azure, error) {
	quiet := decide == nil && isUndisturbed(p)
	if decide == nil {
		decide = faultsOf(p)
	}
	a := &azure{quiet: quiet, cfg: azurestorage.Config{
		TaskHub: "Sim", PartitionCount: p.Partitions, MaxConcurrentActivities: 6, MaxQueuePollingInterval: 15 * time.Second, Logger: logger,
		Tracking: p.Audit,
	}}
	if quiet {
		a.askAfter = time.Duration(rand.New(rand.NewPCG(p.Seed, 0xA5C)).Int64N(int64(2 * time.Second)))
	}
	if p.Inside {
		a.inside = &insiders{seed: p.Seed}
	}
	if p.Varied {
		vary(p.Seed, &a.cfg)
	}
	a.account = azsim.New(azsim.Config{
		Seed: p.Seed, MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond, Loose: p.Loose, Decide: decide, Watch: a.watch.after,
		Directories: p.Strangers > 0,
	})
	var err error
	a.cfg.SetAsideUndecodable = p.Strangers%2 == 1
	a.sendStrangers(p)
	a.client, err = a.open(a.account.Worker("client"))
	return a, err
}

// strangerPrefix is the prefix of undecodable messages.
const strangerPrefix = `{"Stranger":`

// sendStrangers sends undecodable messages at random times. Some have been received many times.
func (a *azure) sendStrangers(p *sim.Plan) {
	random := rand.New(rand.NewPCG(p.Seed, 0x57A4))
	for i := range p.Strangers {
		queue := "sim-workitems"
		if random.IntN(3) > 0 {
			queue = fmt.Sprintf("sim-control-%02d", random.IntN(p.Partitions))
		}
		text, received := fmt.Sprintf("%s%d}", strangerPrefix, i), 9*random.IntN(2)
		var put func()
		put = func() {
			if a.account.Put(queue, text, received) {
				a.strangers.Add(1)
			} else {
				time.AfterFunc(time.Second, put) // the hub does not exist yet
			}
		}
		time.AfterFunc(time.Duration(random.Int64N(int64(p.Quiet))), put)
	}
}

// lostStrangers returns the faults of undecodable messages. None may be missing; duplicates are allowed.
func (a *azure) lostStrangers() (faults []string) {
	sent, there := int(a.strangers.Load()), map[string]bool{}
	for _, queue := range a.account.Queues() {
		for _, m := range a.account.Messages(queue) {
			if !strings.HasPrefix(m.Text, strangerPrefix) {
				continue
			}
			there[m.Text] = true
			if strings.HasSuffix(queue, "-poison") && !a.cfg.SetAsideUndecodable {
				faults = append(faults, "undecodable message was set aside in "+queue+" although setting aside is disabled: "+m.Text)
			}
		}
	}
	if len(there) != sent {
		faults = append(faults, fmt.Sprintf("%[2]d of %[1]d undecodable messages are left", sent, len(there)))
	}
	return faults
}

// vary sets random configuration values derived from a seed.
func vary(seed uint64, cfg *azurestorage.Config) {
	random := rand.New(rand.NewPCG(seed, 0xA27))
	managers := []azurestorage.PartitionManager{azurestorage.TablePartitions, azurestorage.SafeBlobLeases, azurestorage.LegacyBlobLeases}
	cfg.PartitionManager = managers[random.IntN(len(managers))]
	cfg.MaxConcurrentActivities = []int{1, 2, 6}[random.IntN(3)]
}

// outage is a period in which requests of workers to one service fail. The zero value is no outage.
type outage struct {
	service  string
	from, to time.Duration
	fault    azsim.Fault
}

func outageOf(p *sim.Plan) outage {
	random := rand.New(rand.NewPCG(p.Seed, 0x0DD))
	if !p.Varied || p.Faults == 0 || random.IntN(3) > 0 {
		return outage{}
	}
	from := time.Duration(random.Int64N(int64(p.Quiet)))
	return outage{
		service: []string{azsim.QueueService, azsim.TableService, azsim.BlobService}[random.IntN(3)],
		from:    from, to: from + time.Second + time.Duration(random.Int64N(int64(20*time.Second))),
		fault: []azsim.Fault{azsim.Throttle, azsim.FailBefore, azsim.FailAfter}[random.IntN(3)],
	}
}

// faultsOf injects faults into requests with the probabilities of the plan.
func faultsOf(p *sim.Plan) func(azsim.Request) azsim.Fault {
	begin, out := time.Now(), outageOf(p)
	stalls := p.Varied && rand.New(rand.NewPCG(p.Seed, 0x57A11)).IntN(3) == 0
	return func(r azsim.Request) azsim.Fault {
		at := time.Since(begin)
		isClient := strings.HasPrefix(r.Worker, "client")
		switch {
		case isClient && (p.Cuts == 0 || at > p.Quiet):
			return azsim.None
		case !isClient && r.Service == out.service && at >= out.from && at < out.to:
			return out.fault
		case at > p.Quiet:
			return azsim.None
		}
		if random := rand.New(rand.NewPCG(r.Roll, 0x2EA7)); random.Float64() < p.Repeats {
			return repeats[random.IntN(len(repeats))]
		}
		random := rand.New(rand.NewPCG(r.Roll, 0xFA117))
		if random.Float64() >= p.Faults {
			return azsim.None
		}
		kinds := []azsim.Fault{azsim.Throttle, azsim.FailBefore, azsim.FailAfter, azsim.RefuseAfter, azsim.Slow}
		if random.IntN(20) == 0 {
			kinds = []azsim.Fault{azsim.KillBefore, azsim.KillAfter}
		}
		if isClient {
			kinds = []azsim.Fault{azsim.Throttle, azsim.FailBefore, azsim.FailAfter, azsim.RefuseAfter, azsim.Slow}
		}
		fault := kinds[random.IntN(len(kinds))]
		lost := fault == azsim.FailAfter || fault == azsim.RefuseAfter
		if stalls && lost && !isClient && (r.Operation == "EntityGroupTransaction" || random.IntN(6) == 0) {
			return azsim.FreezeAfter // mainly during the commit of a checkpoint
		}
		return fault
	}
}

// repeats are the faults that deliver a request several times or after its caller has given up.
var repeats = []azsim.Fault{azsim.Twice, azsim.Echo, azsim.Late}

func (a *azure) open(w *azsim.Worker) (*azurestorage.TaskHub, error) {
	c, err := azurestorage.ParseConnectionString(a.account.ConnectionString())
	if err != nil {
		return nil, err
	}
	cfg := a.cfg
	cfg.WorkerID, cfg.Transport = w.Name(), w
	return azurestorage.Open(c, cfg)
}

func (a *azure) storage() *azsim.Account { return a.account }

func (a *azure) close() { a.account.End() }

func (a *azure) Client() provider.Client {
	if a.inside != nil {
		return insideClient{a.client, a.inside}
	}
	return a.client
}

func (a *azure) Caller(name string) (provider.Client, func(), error) {
	w := a.account.Worker("client " + name)
	hub, err := a.open(w)
	return hub, w.Kill, err
}

func (a *azure) Context(ctx context.Context, name string) context.Context {
	return chance.WithTurns(chance.With(ctx, a.account.Chance(name)), a.account.Turns(name))
}

// azureProcess is a worker process with the account.
type azureProcess struct {
	*azurestorage.TaskHub
	*azsim.Worker
	activities *atomic.Int64 // number of dispatched activities
	askAfter   time.Duration
}

// Freeze stops the process for d. Its machine may sleep meanwhile, or its wall clock may be set.
func (p azureProcess) Freeze(d time.Duration) {
	p.Worker.Freeze(d)
	p.DisturbClock(d, uint64(d))
}

// NextOrchestration returns sessions that never commit at the same instant.
func (p azureProcess) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	pause.For(ctx, p.askAfter)
	item, err := p.TaskHub.NextOrchestration(ctx)
	if err == nil {
		item.Session = sessionInTurn{item.Session, item.Session.(provider.Settler), item.Instance.InstanceID}
	}
	return item, err
}

// NextActivity returns activities that never complete at the same instant, even if they are copies of one
// another.
func (p azureProcess) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	item, err := p.TaskHub.NextActivity(ctx)
	if err == nil {
		item.Lock = activityInTurn{item.Lock, fmt.Sprint(p.activities.Add(1))}
	}
	return item, err
}

// takeTurn sleeps for a short time that depends on name. It makes the order of goroutines that are ready at
// the same instant independent of the scheduler.
func takeTurn(name string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	time.Sleep(time.Duration(h.Sum64() % uint64(10*time.Microsecond)))
}

type sessionInTurn struct {
	provider.Session
	provider.Settler
	instanceID string
}

func (s sessionInTurn) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	takeTurn(s.instanceID)
	return s.Session.Commit(ctx, cp)
}

type activityInTurn struct {
	provider.ActivityLock
	name string
}

func (l activityInTurn) Complete(ctx context.Context, result history.Event) error {
	takeTurn(l.name)
	return l.ActivityLock.Complete(ctx, result)
}

func (a *azure) Worker(name string, skew time.Duration) (sim.Process, error) {
	w := a.account.Worker(name)
	w.Skew(skew)
	hub, err := a.open(w)
	p := azureProcess{hub, w, new(atomic.Int64), a.askAfter}
	if err == nil && a.inside != nil {
		a.inside.add(p)
	}
	return p, err
}

func (a *azure) Status(id string) (history.RuntimeStatus, error) {
	row, ok := a.account.Row("SimInstances", id, "")
	if !ok {
		return 0, fmt.Errorf("instance %s has no row", id)
	}
	status, ok := history.ParseRuntimeStatus(row.Text("RuntimeStatus"))
	if !ok {
		return 0, fmt.Errorf("instance %s is %q", id, row.Text("RuntimeStatus"))
	}
	return status, nil
}

func (a *azure) Pending() (all []string) {
	if n := a.account.LateRequests(); n > 0 {
		all = append(all, fmt.Sprintf("%d requests", n))
	}
	for _, queue := range a.account.Queues() {
		for _, m := range a.account.Messages(queue) {
			if strings.HasPrefix(m.Text, strangerPrefix) || strings.HasSuffix(queue, "-poison") {
				continue // set-aside messages may have lost their blobs, and no worker processes them
			}
			all = append(all, fmt.Sprintf("%s, received %d times, visible in %v: %s", queue, m.DequeueCount, time.Until(m.VisibleAt), m.Text))
		}
	}
	return all
}

func (a *azure) KeepsOrder() bool { return false }

func (a *azure) Settle() { a.account.Wait() }

func (a *azure) Stored() (all []string) {
	for _, table := range []string{"SimHistory", "SimInstances"} {
		for _, row := range a.account.Rows(table) {
			all = append(all, fmt.Sprintf("row of %s: %+v", table, row))
		}
	}
	for _, b := range a.account.Blobs() {
		if strings.HasSuffix(b.Container, "-largemessages") {
			all = append(all, "blob "+b.Container+"/"+b.Name)
		}
	}
	return all
}
