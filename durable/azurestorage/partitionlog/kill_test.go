package partitionlog_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

var (
	kills     = flag.Int("kills", 0, "the number of times that a worker process is killed; default 6, or 2 in a short run")
	killSeed  = flag.Uint64("kills.seed", 1, "seed of which worker is killed when; 0 takes one from the time")
	killEvery = flag.Duration("kills.every", 1500*time.Millisecond, "the mean time between two kills; what a killed process owned waits 15 s")
)

// childVariable is the environment variable with the connection and the hub of a worker process.
const childVariable = "PARTITIONLOG_WORKER"

// account is an entity that holds money.
type account struct{ Cents, Changes int }

func (a *account) Read(*durable.EntityContext, durable.Void) (account, error) { return *a, nil }

func (a *account) Add(_ *durable.EntityContext, cents int) (durable.Void, error) {
	a.Cents += cents
	a.Changes++
	return durable.Void{}, nil
}

type transfer struct {
	From, To durable.EntityKey[account]
	Cents    int
}

func move(ctx *durable.Context, t transfer) (int, error) {
	unlock := durable.LockEntities(ctx, t.From, t.To)
	defer unlock()
	if _, err := durable.CallEntity(ctx, t.From, (*account).Add, -t.Cents).Await(); err != nil {
		return 0, err
	}
	_, err := durable.CallEntity(ctx, t.To, (*account).Add, t.Cents).Await()
	return t.Cents, err
}

func square(_ context.Context, n int) (int, error) { return n * n, nil }

func squares(ctx *durable.Context, n int) (sum int, err error) {
	var all []*durable.Task[int]
	for i := range n {
		all = append(all, durable.CallActivity(ctx, square, i))
	}
	each, err := durable.AwaitAll(ctx, all...)
	for _, s := range each {
		sum += s
	}
	return sum, err
}

// family calls child orchestrations, possibly in other partitions, one after the other and in
// parallel.
func family(ctx *durable.Context, n int) (int, error) {
	one, err := durable.CallSubOrchestrator(ctx, squares, n).Await()
	if err != nil {
		return 0, err
	}
	more, err := durable.AwaitAll(ctx, durable.CallSubOrchestrator(ctx, squares, n), durable.CallSubOrchestrator(ctx, squares, n+1))
	if err != nil {
		return 0, err
	}
	return one + more[0] + more[1], nil
}

const word = durable.Event[string]("Word")

// listen returns the words that it receives, in order. It continues as new in between.
func listen(ctx *durable.Context, heard []string) (string, error) {
	next, err := word.Wait(ctx).Await()
	if err != nil {
		return "", err
	}
	if heard = append(heard, next); len(heard) == 5 {
		return strings.Join(heard, " "), nil
	}
	if len(heard) == 2 {
		return durable.ContinueAsNew(ctx, listen, heard)
	}
	ctx.Sleep(100 * time.Millisecond)
	return listen(ctx, heard)
}

// signaled is an account that is only signaled, never called, so senders get no confirmation.
const signaled = durable.EntityKey[account]("d")

// later pays after a delay in which its owner may die.
func later(ctx *durable.Context, cents int) (int, error) {
	ctx.Sleep(3 * time.Second)
	durable.SignalFrom(ctx, signaled, (*account).Add, cents)
	return cents, nil
}

var shapes = durable.NewRegistry(
	durable.Orchestrator("Move", move), durable.Orchestrator("Squares", squares), durable.Orchestrator("Family", family),
	durable.Orchestrator("Listen", listen), durable.Orchestrator("Later", later), durable.Activity("Square", square),
	durable.Entity("account", durable.Op("Read", (*account).Read), durable.Op("Add", (*account).Add)),
)

func killConfig(hub string) partitionlog.Config {
	return partitionlog.Config{
		TaskHub: hub, PartitionCount: 8, LeaseInterval: 15 * time.Second, BalanceInterval: 500 * time.Millisecond, DrainTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
}

func openHub(connection, hub string) (*partitionlog.Hub, error) {
	c, err := azurestorage.ParseConnectionString(connection)
	if err != nil {
		return nil, err
	}
	return partitionlog.Open(c, killConfig(hub))
}

// workUntilKilled runs a worker in a child process.
func workUntilKilled(arg string) error {
	connection, name, _ := strings.Cut(arg, " ")
	h, err := openHub(connection, name)
	if err != nil {
		return err
	}
	return durable.NewWorker(h, shapes, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(context.Background())
}

// Workers are killed repeatedly without warning and replaced. Orchestrations that clients in
// another process started end correctly, once, and no money is lost.
func TestHub_LosesNothingWhenProcessesAreKilled(t *testing.T) {
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-kills.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	killed := *kills
	if killed == 0 {
		killed = testshare.Amount(6, 2)
	}
	connection := azuritetest.Start(t)
	name := fmt.Sprintf("K%dx%d", os.Getpid(), hubNumber.Add(1))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *exec.Cmd {
		c := exec.Command(self)
		c.Env = append(os.Environ(), childVariable+"="+connection+" "+name)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	end := func(c *exec.Cmd) {
		_ = c.Process.Kill() // fails only if it has ended
		_ = c.Wait()         // returns an error because it was killed
	}
	workers := []*exec.Cmd{begin(), begin(), begin(), begin()}
	defer func() {
		for _, c := range workers {
			end(c)
		}
	}()
	h, err := openHub(connection, name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := durable.NewClient(h, shapes)

	var all sync.WaitGroup
	over := make(chan struct{})
	want := map[durable.EntityKey[account]]*account{"a": {}, "b": {}, "c": {}, signaled: {}}
	var moved sync.Mutex // protects want
	var passes atomic.Int32
	for range 6 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience.Limit())
				err := useAll(ctx, client, n, func(to durable.EntityKey[account], cents int) {
					moved.Lock()
					defer moved.Unlock()
					want[to].Cents += cents
					want[to].Changes++
				})
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				passes.Add(1)
			}
		})
	}
	for range killed {
		time.Sleep(*killEvery/3 + time.Duration(random.Int64N(int64(*killEvery*4/3)))) // real time: processes die at random times
		i := random.IntN(len(workers))
		end(workers[i])
		workers[i] = begin()
	}
	close(over)
	all.Wait()
	sum := 0
	for key, want := range want {
		read := func() account {
			s, err := durable.ReadEntity(patience.Context(t), client, key)
			if err != nil && !errors.Is(err, durable.ErrEntityNotFound) { // a missing entity was never used
				t.Fatal(err)
			}
			return s
		}
		if key == signaled { // signals may be in flight
			patience.Until(t, fmt.Sprintf("account %s has %+v", key, *want), func() bool { return read() == *want })
		} else if s := read(); s != *want {
			t.Errorf("account %s has %+v, want %+v", key, s, *want)
		}
		sum += want.Changes
	}
	t.Logf("%d passes of all shapes with %d account changes; %d processes were killed", passes.Load(), sum, killed)
}

// useAll starts an instance of each shape and verifies the results.
func useAll(ctx context.Context, c *durable.Client, n int, paid func(to durable.EntityKey[account], cents int)) error {
	keys := []durable.EntityKey[account]{"a", "b", "c"}
	m := transfer{From: keys[n%3], To: keys[(n+1)%3], Cents: n%7 + 1}
	moving, err := durable.Start(ctx, c, move, m)
	if err != nil {
		return fmt.Errorf("start a transfer: %w", err)
	}
	waiting, err := durable.Start(ctx, c, later, m.Cents)
	if err != nil {
		return fmt.Errorf("start a delayed payment: %w", err)
	}
	if err := durable.Signal(ctx, c, signaled, (*account).Add, 1); err != nil {
		return fmt.Errorf("signal an account: %w", err)
	}
	paid(signaled, 1)
	parent, err := durable.Start(ctx, c, family, 3)
	if err != nil {
		return fmt.Errorf("start a family: %w", err)
	}
	listener, err := durable.Start(ctx, c, listen, nil)
	if err != nil {
		return fmt.Errorf("start a listener: %w", err)
	}
	for i := range 5 {
		if err := word.Raise(ctx, c, listener.ID, fmt.Sprint("w", i)); err != nil {
			return fmt.Errorf("raise an event: %w", err)
		}
	}
	if got, err := moving.Wait(ctx); err != nil || got != m.Cents {
		return fmt.Errorf("transfer %s: %d, %w", moving.ID, got, err)
	}
	paid(m.From, -m.Cents)
	paid(m.To, m.Cents)
	if got, err := waiting.Wait(ctx); err != nil || got != m.Cents {
		return fmt.Errorf("delayed payment %s: %d, %w", waiting.ID, got, err)
	}
	paid(signaled, m.Cents)
	if got, err := parent.Wait(ctx); err != nil || got != 5+5+14 {
		return fmt.Errorf("family %s: %d, %w", parent.ID, got, err)
	}
	if got, err := listener.Wait(ctx); err != nil || got != "w0 w1 w2 w3 w4" {
		return fmt.Errorf("listener %s: %q, %w", listener.ID, got, err)
	}
	return nil
}
