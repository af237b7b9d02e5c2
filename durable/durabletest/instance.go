package durabletest

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Instance is an instance in a [Hub] whose output is an O. Its methods fail
// the test if the hub does not know the instance.
type Instance[O any] struct {
	ID  durable.InstanceID
	hub *Hub
}

// Run starts an instance of an orchestrator, waits until it has ended and
// returns its output. The error is that of [Instance.Wait].
func Run[I, O any](h *Hub, orchestrator func(*durable.Context, I) (O, error), in I, opts ...durable.StartOption) (O, error) {
	h.t.Helper()
	return Start(h, orchestrator, in, opts...).Wait()
}

// Start starts an instance of an orchestrator, which must be registered, and
// lets everything happen that can happen at this time: when it returns, the
// instance waits or has ended. Without an InstanceID among opts the instance is
// called instance-1, instance-2 and so on.
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

// InstanceOf returns the instance with the given ID, such as a child. The caller
// says what its output is.
func InstanceOf[O any](h *Hub, id durable.InstanceID) *Instance[O] {
	return &Instance[O]{ID: id, hub: h}
}

// Wait lets time pass until the instance has ended, and returns its output. If
// it failed or was terminated, the error is a
// *[durable.OrchestrationFailedError]. If nothing can happen any more before the
// instance has ended, the test fails with what every instance waits for. When Wait
// returns, everything has happened that can happen at this time: entities have performed
// the signals of the last episode.
func (i *Instance[O]) Wait() (O, error) {
	i.hub.t.Helper()
	i.State() // fails the test if there is none
	i.hub.wait(string(i.ID))
	return durable.InstanceOf[O](i.hub.client, i.ID).Wait(i.hub.ctx)
}

// Raise sends an event to an instance, and lets everything happen that can
// happen at this time. It fails the test if the instance has ended.
func Raise[O, T any](i *Instance[O], event durable.Event[T], v T) {
	i.hub.t.Helper()
	i.sent(event.Raise(i.hub.ctx, i.hub.client, i.ID, v))
}

// Terminate ends the instance; reason becomes its output. Like the methods below
// it then lets everything happen that can happen at this time. It fails the test
// if the instance does not take it, as when it has ended.
func (i *Instance[O]) Terminate(reason string) {
	i.hub.t.Helper()
	i.sent(i.hub.client.Terminate(i.hub.ctx, i.ID, reason))
}

// Suspend makes the instance take no notice of anything until [Instance.Resume].
func (i *Instance[O]) Suspend(reason string) {
	i.hub.t.Helper()
	i.sent(i.hub.client.Suspend(i.hub.ctx, i.ID, reason))
}

// Resume ends a suspension.
func (i *Instance[O]) Resume(reason string) {
	i.hub.t.Helper()
	i.sent(i.hub.client.Resume(i.hub.ctx, i.ID, reason))
}

// sent lets the hub process a message that was sent, if err is nil.
func (i *Instance[O]) sent(err error) {
	i.hub.t.Helper()
	if err != nil {
		i.hub.t.Fatalf("durabletest: %v", err)
	}
	i.hub.settle()
}

// Status returns the instance's runtime status.
func (i *Instance[O]) Status() history.RuntimeStatus {
	i.hub.t.Helper()
	return i.State().Status
}

// CustomStatus returns the instance's custom status as JSON text, empty if it
// has none.
func (i *Instance[O]) CustomStatus() string {
	i.hub.t.Helper()
	if s := i.State().CustomStatus; s != nil {
		return *s
	}
	return ""
}

// State returns all that a client can know of the instance, but its history.
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
