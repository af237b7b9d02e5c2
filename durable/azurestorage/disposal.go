package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// disposals are the messages of an instance, divided by disposition.
type disposals struct {
	hub        *TaskHub
	instanceID string
	stored     *instances.Instance

	deliver      []*delivery
	settled      []*delivery               // all messages that are not delivered
	dispositions []disposition.Disposition // the dispositions of settled
}

// dispositionsOf divides the messages of an instance by disposition.
func dispositionsOf(h *TaskHub, instanceID string, stored *instances.Instance, deliveries []*delivery) disposals {
	messages := make([]disposition.Message, len(deliveries))
	for i, d := range deliveries {
		messages[i] = disposition.Message{
			Event: d.event(), ExecutionID: d.target().ExecutionID,
			DequeueCount: d.dequeueCount, ReceivedAt: d.receivedAt,
			Age: d.age, Lock: d.lock, Scheduled: d.env.Scheduled,
			Superseded: h.superseded.has(d.target()),
		}
	}
	out := disposals{hub: h, instanceID: instanceID, stored: stored}
	for i, v := range disposition.Decide(instanceID, stored, messages) {
		if v.Action == disposition.Deliver {
			out.deliver = append(out.deliver, deliveries[i])
			continue
		}
		out.settled = append(out.settled, deliveries[i])
		out.dispositions = append(out.dispositions, v)
	}
	return out
}

// apply holds back or discards the settled messages. If that fails, the message is redelivered.
func (o disposals) apply(ctx context.Context) {
	// Each kind of repair runs once per batch.
	repaired := map[disposition.Repair]error{}
	for _, v := range o.dispositions {
		if _, done := repaired[v.Repair]; !done {
			repaired[v.Repair] = o.repair(ctx, v.Repair)
		}
	}
	_ = store.Each(ctx, renewalsAtOnce, o.settled, func(ctx context.Context, i int, d *delivery) error {
		v := o.dispositions[i]
		o.dispose(ctx, d, v, repaired[v.Repair])
		return nil
	})
}

// repair makes the repair that must precede the deletion of a message.
func (o disposals) repair(ctx context.Context, r disposition.Repair) error {
	switch r {
	case disposition.RepairTracking:
		return o.hub.tracking.resend(ctx, o.instanceID)
	case disposition.RepairRow:
		return o.hub.repair(ctx, o.instanceID, o.stored)
	case disposition.RepairNothing:
	}
	return nil
}

// repair repairs the row and the tracking records of an instance. stored is the instance as it was
// read; if it is nil, repair reads it.
func (h *TaskHub) repair(ctx context.Context, instanceID string, stored *instances.Instance) error {
	if instanceID == "" {
		return nil
	}
	if err := h.instances.Repair(ctx, instanceID, stored); err != nil {
		return err
	}
	return h.tracking.resend(ctx, instanceID)
}

// dispose acts on a message's disposition. err is the error of the repair; after an error, the
// message is abandoned instead of discarded.
func (o disposals) dispose(ctx context.Context, d *delivery, v disposition.Disposition, err error) {
	switch v.Action {
	case disposition.HoldBack:
		if v == disposition.NotYetStarted && o.stored.Row != nil {
			d.abandonFor(ctx, v.Event, startDelay(&o.stored.Row.State, d.timesReceived(), time.Now()), v.Reason)
			return
		}
		d.abandonAs(ctx, v.Event, v.Reason)
		return
	case disposition.Terminate:
		event, _ := d.event().(*history.ExecutionTerminated)
		if err = o.hub.instances.TerminateUnstarted(ctx, o.instanceID, o.stored, event); err == nil {
			err = o.hub.tracking.resend(ctx, o.instanceID)
		}
	case disposition.Deliver, disposition.Discard, disposition.Refuse:
	}
	if err != nil {
		d.abandonOnError(ctx, err)
		return
	}
	if v.Event == disposition.Duplicate {
		o.hub.routine.record(v.Event, d.attrs("reason", v.Reason))
	} else {
		o.hub.log.Warn(v.Event, d.attrs("reason", v.Reason)...)
	}
	if v.Action == disposition.Refuse {
		d.refuse(ctx)
		return
	}
	d.discard(ctx)
}

// maxStartDelay limits how long a message is held back while its instance is due but has not
// started.
const maxStartDelay = 10 * time.Second

// startDelay returns how long to hold back a message for an instance that has not started.
// dequeueCount is the number of its receives. The delay grows as usual, but is limited so that the
// message is redelivered soon after the start. Before the scheduled time, the limit is one second
// after that time. Later, it is a quarter of the lateness or maxStartDelay, whichever is longer.
func startDelay(s *provider.InstanceState, dequeueCount int, now time.Time) time.Duration {
	delay := abandonDelay(dequeueCount)
	late := now.Sub(dueSince(s))
	if late < 0 {
		return min(delay, (-late).Truncate(time.Second)+time.Second)
	}
	return min(delay, max(maxStartDelay, (late/4).Truncate(time.Second)))
}
