package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// logs is a partition log hub in a simulated storage account.
type logs struct {
	account *azsim.Account
	cfg     partitionlog.Config
	client  *partitionlog.Hub
	// inside holds the worker processes through which clients send requests. It is nil unless plan.Inside is
	// set.
	inside *insiders

	mu      sync.Mutex // guards the fields below
	opened  []*partitionlog.Hub
	running int       // number of running workers
	active  time.Time // time of the last append, or of the last late request that extends the ownership of a partition
}

// newLogs returns the platform for a plan. decide injects faults into requests; nil means the faults of the
// plan.
func newLogs(p *sim.Plan, decide func(azsim.Request) azsim.Fault, logger *slog.Logger) (*logs, error) {
	if decide == nil {
		decide = faultsOf(p)
	}
	account := azsim.Config{Seed: p.Seed, MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond, Loose: p.Loose, Decide: decide, Directories: p.Strangers > 0}
	if p.App.Large {
		readBaseAtOnce(p, &account)
	}
	l := &logs{cfg: partitionlog.Config{TaskHub: "Sim", PartitionCount: p.Partitions, Logger: logger}}
	if p.Inside {
		l.inside = &insiders{seed: p.Seed}
	}
	if p.Varied {
		random := rand.New(rand.NewPCG(p.Seed, 0x10C))
		l.cfg.LeaseInterval = []time.Duration{15 * time.Second, 30 * time.Second, time.Minute}[random.IntN(3)]
		l.cfg.BalanceInterval = []time.Duration{time.Second, 5 * time.Second}[random.IntN(2)]
		if random.IntN(4) == 0 {
			slowMail(p, &account)
		}
	}
	account.Watch = l.after
	l.account = azsim.New(account)
	sendStrangeBlobs(p, l.account)
	if p.Varied {
		restoreMail(p, l.account)
	}
	var err error
	l.client, err = l.open(l.account.Worker("client"))
	return l, err
}

// isBaseFile reports whether a path or a URL belongs to a file of a partition's base. Some readers of the
// base hold a mutex. No time passes in a bubble while other goroutines wait for a mutex.
func isBaseFile(path string) bool { return strings.Contains(path, "/base-") }

// readBaseAtOnce makes reads of base files take no time and never fail, because readers hold a mutex during
// the read. It also replaces freezes by kills, because a frozen reader would block the bubble.
func readBaseAtOnce(p *sim.Plan, cfg *azsim.Config) {
	decide, lo, span := cfg.Decide, cfg.MinLatency, uint64(cfg.MaxLatency-cfg.MinLatency)
	cfg.MinLatency, cfg.MaxLatency = 0, 0
	isBase := func(r azsim.Request) bool { return r.Operation == "GetBlob" && isBaseFile(r.Path) }
	cfg.Delay = func(r azsim.Request, _ int) time.Duration {
		if isBase(r) {
			return 0
		}
		return 2 * (lo + time.Duration(r.Roll%span))
	}
	cfg.Decide = func(r azsim.Request) azsim.Fault {
		fault := decide(r)
		switch {
		case isBase(r):
			return azsim.None
		case fault == azsim.FreezeAfter:
			return azsim.KillAfter
		}
		return fault
	}
	for i := range p.Disturbances {
		if p.Disturbances[i].Kind == sim.FreezeIt {
			p.Disturbances[i].Kind = sim.KillIt
		}
	}
}

// slowMail limits the download of mail to 200 bytes per second until the plan is quiet, and interrupts every
// tenth download.
func slowMail(p *sim.Plan, cfg *azsim.Config) {
	begin, decide := time.Now(), cfg.Decide
	isSlow := func(r azsim.Request) bool {
		return r.Operation == "GetBlob" && time.Since(begin) < p.Quiet && (strings.Contains(r.Path, "/mail-") || strings.Contains(r.Path, "/letter-"))
	}
	cfg.Bandwidth = func(r azsim.Request) int {
		if isSlow(r) {
			return 200
		}
		return 0
	}
	cfg.Decide = func(r azsim.Request) azsim.Fault {
		fault := decide(r)
		if fault == azsim.None && isSlow(r) && r.Roll/7%10 == 0 {
			return azsim.Cut
		}
		return fault
	}
}

// restoreMail restores the mailboxes without their leases, three times, in every fourth plan.
func restoreMail(p *sim.Plan, account *azsim.Account) {
	random := rand.New(rand.NewPCG(p.Seed, 0x2E5))
	if random.IntN(4) > 0 {
		return
	}
	for range 3 {
		time.AfterFunc(time.Duration(random.Int64N(int64(p.Quiet))), func() { account.Restore("/mail-") })
	}
}

// sendStrangeBlobs creates unknown blobs in the hub's container: among the workers' heartbeats, and next to
// logs and mailboxes. It creates no undecodable mail, because the owner of the partition would wait for a
// program that can decode it.
func sendStrangeBlobs(p *sim.Plan, account *azsim.Account) {
	random := rand.New(rand.NewPCG(p.Seed, 0x57A4))
	stranger := account.Worker("client stranger")
	for i := range p.Strangers {
		folder := "workers"
		if random.IntN(2) == 0 {
			folder = fmt.Sprintf("p%02d", random.IntN(p.Partitions))
		}
		url := fmt.Sprintf("https://sim.blob.core.windows.net/sim-log/%s/%s%d", folder, strangeBlobPrefix, i)
		var put func()
		put = func() {
			r, err := http.NewRequest(http.MethodPut, url, strings.NewReader("strange"))
			if err != nil {
				panic(err) // unreachable: the URL is valid
			}
			r.Header.Set("x-ms-version", "2025-01-05")
			r.Header.Set("x-ms-blob-type", "BlockBlob")
			r.Header.Set("x-ms-meta-heartbeat", `{"partitions":"strange"}`)
			answer, err := stranger.Do(r)
			if err == nil {
				_ = answer.Body.Close() // the account is simulated
			}
			if err != nil || answer.StatusCode != http.StatusCreated {
				time.AfterFunc(time.Second, put) // the hub does not exist yet
			}
		}
		time.AfterFunc(time.Duration(random.Int64N(int64(p.Quiet))), put)
	}
}

// strangeBlobPrefix is the prefix of the names of unknown blobs.
const strangeBlobPrefix = "strange-"

// after records the time of appends and of late heartbeats and lease renewals. The latter keep other workers
// from acquiring the partitions of a dead worker.
func (l *logs) after(_ azsim.View, e azsim.Entry) {
	isLate := e.AppliedAt-e.SentAt > time.Second && (e.Operation == "RenewLease" || strings.Contains(e.Path, "/workers/"))
	isWork := e.Operation == "AppendBlock" && e.Status == http.StatusCreated && !strings.Contains(e.Path, "/workers/")
	if isLate || isWork {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.active = time.Now()
	}
}

func (l *logs) open(w *azsim.Worker) (*partitionlog.Hub, error) {
	c, err := azurestorage.ParseConnectionString(l.account.ConnectionString())
	if err != nil {
		return nil, err
	}
	cfg := l.cfg
	cfg.WorkerID, cfg.Transport = w.Name(), w
	h, err := partitionlog.Open(c, cfg)
	if err == nil {
		l.mu.Lock()
		l.opened = append(l.opened, h)
		l.mu.Unlock()
	}
	return h, err
}

// close closes all processes.
func (l *logs) close() {
	l.mu.Lock()
	all := l.opened
	l.mu.Unlock()
	for _, h := range all {
		_ = h.Close() // dead processes cannot release their resources
	}
	l.account.End()
}

func (l *logs) storage() *azsim.Account { return l.account }

func (l *logs) Client() provider.Client {
	if l.inside != nil {
		return insideClient{l.client, l.inside}
	}
	return l.client
}

func (l *logs) Caller(name string) (provider.Client, func(), error) {
	w := l.account.Worker("client " + name)
	h, err := l.open(w)
	return h, w.Kill, err
}

func (l *logs) Context(ctx context.Context, name string) context.Context {
	turn := l.account.Turns(name)
	return chance.WithTurns(chance.With(ctx, l.account.Chance(name)), func(ctx context.Context, name string, content io.Reader) {
		if !isBaseFile(name) {
			turn(ctx, name, content)
		}
	})
}

// logProcess is a worker process with the account.
type logProcess struct {
	*partitionlog.Hub
	*azsim.Worker
	logs       *logs
	activities *atomic.Int64 // number of dispatched activities
}

// Freeze stops the process for d. Its machine may sleep meanwhile, or its wall clock may be set.
func (p logProcess) Freeze(d time.Duration) {
	p.Worker.Freeze(d)
	p.DisturbClock(d, uint64(d))
}

// Worker returns a process. It ignores the skew, because the account cannot shift the times in log frames.
func (l *logs) Worker(name string, _ time.Duration) (sim.Process, error) {
	w := l.account.Worker(name)
	h, err := l.open(w)
	p := logProcess{h, w, l, new(atomic.Int64)}
	if err == nil && l.inside != nil {
		l.inside.add(p)
	}
	return p, err
}

// Run closes the process at its end.
func (p logProcess) Run(ctx context.Context) error {
	p.logs.begin(1)
	err := p.Hub.Run(ctx)
	if p.logs.inside != nil {
		p.logs.inside.remove(p)
	}
	_ = p.Close() // may fail after faults
	p.logs.begin(-1)
	return err
}

// begin adds n to the number of running workers.
func (l *logs) begin(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running += n
}

// NextOrchestration returns sessions that never commit at the same instant.
func (p logProcess) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item, err := p.Hub.NextOrchestration(ctx)
	if err == nil {
		item.Session = logSession{item.Session, item.Instance.InstanceID}
	}
	return item, err
}

type logSession struct {
	provider.Session
	instanceID string
}

func (s logSession) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	takeTurn(s.instanceID)
	return s.Session.Commit(ctx, cp)
}

// NextActivity returns activities that never complete at the same instant.
func (p logProcess) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	item, err := p.Hub.NextActivity(ctx)
	if err == nil {
		item.Lock = activityInTurn{item.Lock, fmt.Sprint(p.activities.Add(1))}
	}
	return item, err
}

func (l *logs) Status(id string) (history.RuntimeStatus, error) {
	state, err := l.client.Instance(l.Context(context.Background(), "oracle"), id, provider.Fetch{})
	if err != nil {
		return 0, err
	}
	return state.Status, nil
}

// KeepsOrder reports whether all messages of a client come from the same process.
func (l *logs) KeepsOrder() bool { return l.inside == nil }

// quietFor is the time without appends and late renewals after which the hub counts as idle. Within this time
// the partitions of a dead owner get a new owner.
const quietFor = 75 * time.Second

func (l *logs) Pending() (all []string) {
	if n := l.account.LateRequests(); n > 0 {
		all = append(all, fmt.Sprintf("%d requests", n))
	}
	l.mu.Lock()
	running, appended := l.running, l.active
	l.mu.Unlock()
	if running > 0 { // with a running worker, only the worker can read all partitions
		if ago := time.Since(appended); ago < quietFor {
			all = append(all, fmt.Sprintf("what was appended %v ago", ago))
		}
		return all
	}
	var t provider.Totals
	err := awaitUnowned(func() (err error) {
		t, err = l.client.Totals(l.Context(context.Background(), "oracle"))
		return err
	})
	switch {
	case err != nil:
		all = append(all, err.Error())
	case t.Messages+t.Activities > 0:
		all = append(all, t.String())
	}
	return all
}

func (l *logs) Settle() { l.account.Wait() }

// Stored must be called without a running worker.
func (l *logs) Stored() (all []string) {
	err := awaitUnowned(func() error {
		var list lister
		err := l.client.Export(l.Context(context.Background(), "oracle"), &list, provider.ExportOptions{})
		all = list
		return err
	})
	if err != nil {
		all = append(all, err.Error())
	}
	return all
}

// awaitUnowned calls ask, which needs all partitions, without a running worker. It waits until the leases of
// killed workers have expired.
func awaitUnowned(ask func() error) error {
	for deadline := time.Now().Add(quietFor); ; time.Sleep(time.Second) {
		if err := ask(); !errors.Is(err, provider.ErrHubBusy) || time.Now().After(deadline) {
			return err
		}
	}
}

func (l *logs) Audit() []string { return nil }

// Inspect checks all requests to the account. Every append to a log must be conditional on the lease and the
// position, which exclude other writers.
func (l *logs) Inspect([]sim.ActivityRun) (faults []string) {
	for _, e := range l.account.Log() {
		if e.Operation == "AppendBlock" && strings.Contains(e.Path, "/log-") &&
			(e.Header("x-ms-lease-id") == "" || e.Header("x-ms-blob-condition-appendpos") == "") {
			faults = append(faults, fmt.Sprintf("%s appends without a lease or a position: %v", e.Worker, e))
		}
		if strings.Contains(e.Path, strangeBlobPrefix) && e.Operation != "PutBlob" && e.SentAt < 24*time.Hour { // old heartbeats are removed
			faults = append(faults, fmt.Sprintf("%s accesses an unknown blob: %v", e.Worker, e))
		}
	}
	return faults
}
