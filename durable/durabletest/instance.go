package durabletest

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Instance is a handle to an instance in a [Hub] with output type O. Its methods fail the test if the
// instance does not exist.
type Instance[O any] struct {
	ID  durable.InstanceID
	hub *Hub
}

// Run starts an instance of an orchestrator, waits until it ends and returns its output. The error is the
// error of [Instance.Wait].
func Run[I, O any](h *Hub, orchestrator func(*durable.Context, I) (O, error), in I, opts ...durable.StartOption) (O, error) {
	h.t.Helper()
	return Start(h, orchestrator, in, opts...).Wait()
}

// Start starts an instance of a registered orchestrator and runs all work that is due at the hub's time.
// When it returns, the instance is waiting or has ended. Start fails the test if the instance cannot be
// started. Unless opts has a [durable.InstanceID], the instance IDs are instance-1, instance-2 and so on.
func Start[I, O any](h *Hub, orchestrator func(*durable.Context, I) (O, error), in I, opts ...durable.StartOption) *Instance[O] {
	h.t.Helper()
	h.started++
	id := durable.InstanceID(fmt.Sprintf("instance-%d", h.started))
	i, err := durable.Start(h.ctx, h.client, orchestrator, in, append([]durable.StartOption{id}, opts...)...)
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	h.settle()
	return &Instance[O]{ID: i.ID, hub: h}
}

// InstanceOf returns a handle to the instance with the given ID, such as a child. The caller chooses the
// output type.
func InstanceOf[O any](h *Hub, id durable.InstanceID) *Instance[O] {
	return &Instance[O]{ID: id, hub: h}
}

// Wait advances the hub's time until the instance has ended, and returns its output. If the instance
// failed or was terminated, the error is a *[durable.OrchestrationFailedError]. If the instance can never
// end, the test fails, and the message lists what every instance waits for. Before it returns, Wait runs
// all other work that is due at that time, such as signals to entities in the last episode.
func (i *Instance[O]) Wait() (O, error) {
	i.hub.t.Helper()
	i.State() // fails the test if the instance does not exist
	i.hub.wait(string(i.ID))
	return durable.InstanceOf[O](i.hub.client, i.ID).Wait(i.hub.ctx)
}

// Raise sends an event to an instance and runs all work that is due at the hub's time. It fails the test
// if the instance has ended.
func Raise[O, T any](i *Instance[O], event durable.Event[T], v T) {
	i.hub.t.Helper()
	i.settleAfter(event.Raise(i.hub.ctx, i.hub.client, i.ID, v))
}

// Terminate ends the instance; reason becomes its output. It then runs all work that is due at the hub's
// time. It fails the test if the instance has ended.
func (i *Instance[O]) Terminate(reason string) {
	i.hub.t.Helper()
	i.settleAfter(i.hub.client.Terminate(i.hub.ctx, i.ID, reason))
}

// Suspend suspends the instance: it processes no further events until [Instance.Resume]. Suspend then
// runs all work that is due at the hub's time. It fails the test if the instance is suspended or has
// ended.
func (i *Instance[O]) Suspend(reason string) {
	i.hub.t.Helper()
	i.settleAfter(i.hub.client.Suspend(i.hub.ctx, i.ID, reason))
}

// Resume ends a suspension and runs all work that is due at the hub's time. It fails the test if the
// instance is not suspended.
func (i *Instance[O]) Resume(reason string) {
	i.hub.t.Helper()
	i.settleAfter(i.hub.client.Resume(i.hub.ctx, i.ID, reason))
}

// settleAfter fails the test if err is not nil. Otherwise the hub processes the message that was sent.
func (i *Instance[O]) settleAfter(err error) {
	i.hub.t.Helper()
	if err != nil {
		i.hub.t.Fatalf("durabletest: %v", err)
	}
	i.hub.settle()
}

// Status returns the runtime status of the instance.
func (i *Instance[O]) Status() durable.RuntimeStatus {
	i.hub.t.Helper()
	return i.State().Status
}

// CustomStatus returns the custom status of the instance as JSON text, empty if it has none.
func (i *Instance[O]) CustomStatus() string {
	i.hub.t.Helper()
	if s := i.State().CustomStatus; s != nil {
		return *s
	}
	return ""
}

// State returns everything that a client can read about the instance, except its history.
func (i *Instance[O]) State() *durable.InstanceState {
	i.hub.t.Helper()
	s, err := i.hub.client.Status(i.hub.ctx, i.ID, durable.Fetch{Input: true, Output: true})
	if err != nil {
		i.hub.t.Fatalf("durabletest: %v", err)
	}
	return s
}

// History returns the events of the instance's current execution.
func (i *Instance[O]) History() []history.Event {
	i.hub.t.Helper()
	events, err := i.hub.client.History(i.hub.ctx, i.ID)
	if err != nil {
		i.hub.t.Fatalf("durabletest: %v", err)
	}
	return events
}
