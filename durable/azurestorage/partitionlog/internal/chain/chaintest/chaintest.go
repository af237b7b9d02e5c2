// Package chaintest is a test kit for packages that store data in chains of append blobs. It runs
// tests against Azurite, and against a simulated account whose processes can freeze at any request.
package chaintest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/google/uuid"
)

// Azurite returns a new container and a counter of the requests to it.
func Azurite(t *testing.T) (*store.Container, *azuritetest.Counter) {
	t.Helper()
	connection := azuritetest.Start(t)
	counter := azuritetest.NewCounter(connection, nil)
	c := container(t, connection, counter, "c"+uuid.NewString())
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	counter.Reset()
	return c, counter
}

// Simulated returns a client of the hub's container in a simulated account. Its requests go through
// process.
func Simulated(t *testing.T, account *azsim.Account, process policy.Transporter) *store.Container {
	t.Helper()
	return container(t, account.ConnectionString(), process, "hub-log")
}

func container(t *testing.T, connection string, transport policy.Transporter, name string) *store.Container {
	t.Helper()
	account, err := store.ParseAccount(connection)
	if err != nil {
		t.Fatal(err)
	}
	services, err := store.NewServices(account, account, transport, nil, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return store.NewContainer(services.Blobs, services.BlobEndpoint, name)
}

// A Process is the transport of a process that can be frozen. The process does not notice the
// freeze: when it wakes, it sends the pending request even if its context has ended. Some machines
// sleep meanwhile, or their wall clocks are set.
type Process struct {
	// Freeze returns how long to freeze the process before its n-th request, or after that request
	// took effect. n counts from 1. Nil means never.
	Freeze func(n int, after bool) time.Duration

	next policy.Transporter
	mu   sync.Mutex // protects the fields below
	n    int
	thaw time.Time
}

// NewProcess returns a process that sends its requests through next.
func NewProcess(next policy.Transporter) *Process { return &Process{next: next} }

// Clock returns the clock of the process's machine.
func (p *Process) Clock() *clocks.Clock { return clocks.Of(p.next) }

// Requests returns the number of requests so far.
func (p *Process) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Do implements [policy.Transporter].
func (p *Process) Do(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.n++
	n := p.n
	p.mu.Unlock()
	if p.pause(n, false) {
		req = req.WithContext(context.WithoutCancel(req.Context()))
	}
	resp, err := p.next.Do(req)
	p.pause(n, true)
	return resp, err
}

// pause waits while the process is frozen. It reports whether it was.
func (p *Process) pause(n int, after bool) (frozen bool) {
	if p.Freeze != nil {
		if d := p.Freeze(n, after); d > 0 {
			p.mu.Lock()
			p.thaw = time.Now().Add(d)
			p.mu.Unlock()
			if w, ok := p.next.(*azsim.Worker); ok {
				w.DisturbClock(d, uint64(n))
			}
		}
	}
	for {
		p.mu.Lock()
		d := time.Until(p.thaw)
		p.mu.Unlock()
		if d <= 0 {
			return frozen
		}
		frozen = true
		time.Sleep(d)
	}
}

// RandomFaults returns a decision function that injects a random fault into one of oneOf requests
// until stop returns true.
func RandomFaults(oneOf uint64, stop func() bool) func(azsim.Request) azsim.Fault {
	faults := []azsim.Fault{
		azsim.Throttle, azsim.FailBefore, azsim.FailAfter, azsim.RefuseAfter, azsim.Slow, azsim.FreezeAfter, azsim.Twice, azsim.Echo, azsim.Late,
		azsim.Cut,
	}
	return func(r azsim.Request) azsim.Fault {
		if stop() || r.Roll%oneOf != 0 {
			return azsim.None
		}
		return faults[r.Roll/oneOf%uint64(len(faults))]
	}
}

// RandomFreezes returns a [Process.Freeze] function that freezes the process at one of oneOf
// requests, for up to two minutes, until stop returns true.
func RandomFreezes(seed uint64, oneOf int, stop func() bool) func(int, bool) time.Duration {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func(int, bool) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if stop() || random.IntN(oneOf) != 0 {
			return 0
		}
		return time.Duration(random.IntN(120)) * time.Second
	}
}
