package sim_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// storedHubs are the hubs in a storage account; allHubs are all hubs.
var (
	storedHubs = []string{"azure", "log"}
	allHubs    = append(slices.Clip(storedHubs), "embedded")
)

// storedPlatform is a platform in a simulated account.
type storedPlatform interface {
	sim.Platform
	storage() *azsim.Account
	close() // closes all processes
}

// newStored returns the platform for a plan on a hub in an account. decide injects faults into requests; nil
// means the faults of the plan.
func newStored(hub string, p *sim.Plan, decide func(azsim.Request) azsim.Fault, logger *slog.Logger) (storedPlatform, error) {
	if hub == "log" {
		return newLogs(p, decide, logger)
	}
	return newAzure(p, decide, logger)
}

// storedHub is the client interface of a hub in an account.
type storedHub interface {
	provider.Client
	provider.Awaiter
	provider.Purger
	provider.Rewinder
}

// insider is a worker process that also serves clients.
type insider interface {
	sim.Process
	storedHub
}

// insiders are the worker processes that serve clients.
type insiders struct {
	mu   sync.Mutex
	all  []insider
	sent uint64
	seed uint64
}

func (i *insiders) add(p insider) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, p)
}

// remove removes a process that has stopped.
func (i *insiders) remove(p insider) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = slices.DeleteFunc(i.all, func(other insider) bool { return other == p })
}

// next returns a random live process for the next request; ok is false if all processes are dead.
func (i *insiders) next() (p insider, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = slices.DeleteFunc(i.all, func(p insider) bool {
		select {
		case <-p.Dead():
			return true
		default:
			return false
		}
	})
	if len(i.all) == 0 {
		return p, false
	}
	i.sent++
	return i.all[rand.New(rand.NewPCG(i.seed, i.sent)).IntN(len(i.all))], true
}

// insideClient is a client that sends its requests through worker processes.
type insideClient struct {
	storedHub
	inside *insiders
}

var everyStatus = []history.RuntimeStatus{
	history.Running, history.Completed, history.Failed, history.Canceled, history.Terminated, history.Pending, history.Suspended,
}

// StartInstance starts an instance through a worker process. If that fails, it uses the regular client.
func (c insideClient) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	p, ok := c.inside.next()
	if !ok {
		return c.storedHub.StartInstance(ctx, start, refuse)
	}
	err := p.StartInstance(ctx, start, refuse)
	if err == nil || errors.Is(err, provider.ErrInstanceExists) {
		return err
	}
	if err = c.storedHub.StartInstance(ctx, start, everyStatus); errors.Is(err, provider.ErrInstanceExists) {
		return nil // started by the first attempt
	}
	return err
}

// Send sends a message through a worker process. If a signal may not have arrived, it sends the signal again
// with the regular client. The entity recognizes the duplicate.
func (c insideClient) Send(ctx context.Context, msg provider.TaskMessage) error {
	p, ok := c.inside.next()
	if !ok {
		return c.storedHub.Send(ctx, msg)
	}
	err := p.Send(ctx, msg)
	if err != nil && history.IsEntity(msg.Target.InstanceID) {
		return c.storedHub.Send(ctx, msg)
	}
	return err
}
