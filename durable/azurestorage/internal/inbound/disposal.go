package inbound

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Disposer decides and executes the dispositions of messages.
type Disposer struct {
	*monitor.Monitor
	Instances  *instances.Store
	Resend     func(ctx context.Context, instanceID string) error // sends tracking records that may be missing
	Superseded func(history.OrchestrationInstance) bool           // reports whether this process has replaced an execution
	Refused    func(blob string)                                  // called with the blob of a refused start's message
}

// disposals are the messages of an instance, divided by disposition.
type disposals struct {
	*Disposer
	instanceID string
	stored     *instances.Instance

	deliver      []*inflight.Delivery
	settled      []*inflight.Delivery      // all messages that are not delivered
	dispositions []disposition.Disposition // the dispositions of settled
}

// divide divides the messages of an instance by disposition. held are earlier messages, which the
// instance's session has not committed.
func (d *Disposer) divide(instanceID string, stored *instances.Instance, held, deliveries []*inflight.Delivery) disposals {
	all := slices.Concat(held, deliveries)
	messages := make([]disposition.Message, len(all))
	for i, m := range all {
		messages[i] = disposition.Message{
			Event: m.Event(), ExecutionID: m.Target().ExecutionID,
			DequeueCount: m.DequeueCount, ReceivedAt: m.ReceivedAt,
			Age: m.Age, VisibilityTimeout: m.VisibilityTimeout, Scheduled: m.Env.Scheduled,
			Superseded: d.Superseded(m.Target()),
		}
	}
	out := disposals{Disposer: d, instanceID: instanceID, stored: stored}
	for i, v := range disposition.Decide(instanceID, stored, messages)[len(held):] {
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
	_ = store.ForEach(ctx, inflight.RenewalsAtOnce, o.settled, func(ctx context.Context, i int, d *inflight.Delivery) error {
		v := o.dispositions[i]
		o.dispose(ctx, d, v, repaired[v.Repair])
		return nil
	})
}

// repair makes the repair that must precede the deletion of a message.
func (o disposals) repair(ctx context.Context, r disposition.Repair) error {
	switch r {
	case disposition.RepairTracking:
		return o.Resend(ctx, o.instanceID)
	case disposition.RepairRow:
		return o.repairRow(ctx, o.instanceID, o.stored)
	case disposition.RepairNothing:
	}
	return nil
}

// repairRow repairs the row and the tracking records of an instance. stored is the instance as it
// was read; if it is nil, repairRow reads it.
func (d *Disposer) repairRow(ctx context.Context, instanceID string, stored *instances.Instance) error {
	if instanceID == "" {
		return nil
	}
	if err := d.Instances.Repair(ctx, instanceID, stored); err != nil {
		return err
	}
	return d.Resend(ctx, instanceID)
}

// repairSpent repairs the row and the tracking records of an instance and deletes the message. See
// [inflight.Delivery.MarkCommitted].
func (d *Disposer) repairSpent(ctx context.Context, m *inflight.Delivery, instanceID string) {
	if err := d.repairRow(ctx, instanceID, nil); err != nil {
		m.KeepSpent(instanceID)
		m.AbandonOnError(ctx, err)
		return
	}
	m.RemoveDuplicate(ctx)
}

// dispose acts on a message's disposition. err is the error of the repair; after an error, the
// message is abandoned instead of discarded.
func (o disposals) dispose(ctx context.Context, d *inflight.Delivery, v disposition.Disposition, err error) {
	switch v.Action {
	case disposition.HoldBack:
		if v == disposition.NotYetStarted && o.stored.Row != nil {
			d.AbandonFor(ctx, v.Event, startDelay(&o.stored.Row.State, d.TimesReceived(), time.Now()), v.Reason)
			return
		}
		d.AbandonAs(ctx, v.Event, v.Reason)
		return
	case disposition.Terminate:
		event, _ := d.Event().(*history.ExecutionTerminated)
		if err = o.Instances.TerminateUnstarted(ctx, o.instanceID, o.stored, event); err == nil {
			err = o.Resend(ctx, o.instanceID)
		}
	case disposition.Deliver, disposition.Discard, disposition.Refuse:
	}
	if err != nil {
		d.AbandonOnError(ctx, err)
		return
	}
	if v.Event == disposition.Duplicate {
		o.Routine.Record(v.Event, d.Attrs("reason", v.Reason))
	} else {
		o.Log.Warn(v.Event, d.Attrs("reason", v.Reason)...)
	}
	if v.Action == disposition.Refuse {
		o.refuse(ctx, d)
		return
	}
	d.Discard(ctx)
}

// refuse deletes the message of a refused start. It reports the message's blob for a later delete,
// because another copy of the message may be in the queue.
func (o disposals) refuse(ctx context.Context, d *inflight.Delivery) {
	d.Discard(ctx)
	if wrapper, err := wire.DecodeEnvelope(d.Text()); err == nil {
		o.Refused(wrapper.CompressedBlobName)
	}
}

// maxStartDelay is the maximum delay of a message whose instance has become due recently but has not started.
// See startDelay.
const maxStartDelay = 10 * time.Second

// startDelay returns the delay of a message whose instance has not started. dequeueCount is the number of
// receives of the message. The delay grows as usual, but is limited so that the message is redelivered soon
// after the start. Before the scheduled time, the limit is one second after that time. Later, it is a quarter
// of the lateness or maxStartDelay, whichever is longer.
func startDelay(s *provider.InstanceState, dequeueCount int, now time.Time) time.Duration {
	delay := inflight.AbandonDelay(dequeueCount)
	late := now.Sub(instances.DueSince(s))
	if late < 0 {
		return min(delay, (-late).Truncate(time.Second)+time.Second)
	}
	return min(delay, max(maxStartDelay, (late/4).Truncate(time.Second)))
}
