package azurestorage

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// disposals are judged messages: those to hand out, and those to do away with.
type disposals struct {
	deliver  []*delivery
	settled  []*delivery // held back, discarded and so on
	verdicts []verdict   // of settled
}

// judge decides about deliveries for an instance by judgeMessages.
func judge(instanceID string, stored *loadedInstance, deliveries []*delivery) disposals {
	messages := make([]arrived, len(deliveries))
	for i, d := range deliveries {
		messages[i] = arrived{
			event: d.event(), executionID: d.target().ExecutionID,
			dequeueCount: d.dequeueCount, receivedAt: d.receivedAt,
			age: d.receivedAt.Sub(d.insertedOn), lock: d.lock, scheduled: d.env.Scheduled,
		}
	}
	var out disposals
	for i, v := range judgeMessages(instanceID, stored, messages) {
		if v.fate == fateDeliver {
			out.deliver = append(out.deliver, deliveries[i])
			continue
		}
		out.settled = append(out.settled, deliveries[i])
		out.verdicts = append(out.verdicts, v)
	}
	return out
}

// apply does away with the settled messages. What fails comes back by itself.
func (o disposals) apply(ctx context.Context, h *TaskHub, instanceID string, stored *loadedInstance) {
	var group errgroup.Group
	group.SetLimit(renewalsAtOnce)
	for i, d := range o.settled {
		v := o.verdicts[i]
		group.Go(func() error {
			h.dispose(ctx, instanceID, stored, d, v)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

func (h *TaskHub) dispose(ctx context.Context, instanceID string, stored *loadedInstance, d *delivery, v verdict) {
	var err error
	switch v.fate {
	case fateHoldBack:
		if v.event != "AbandoningMessage" {
			h.log.Warn(v.event, d.attrs("reason", v.reason)...)
		}
		if v == notYetStarted && stored.row != nil {
			d.abandonFor(ctx, startDelay(stored.row.State.ScheduledAt, d.receives(), time.Now()), v.reason)
			return
		}
		d.abandon(ctx, v.reason)
		return
	case fateTerminate:
		event, _ := d.event().(*history.ExecutionTerminated)
		err = h.terminateUnstarted(ctx, instanceID, stored, event)
	case fateRepair:
		err = h.repairEnded(ctx, instanceID, stored)
	case fateDiscard:
		switch {
		case v == foreign, v == continued: // it may be what is left of a generation that was followed by others
			err = h.repairCurrent(ctx, instanceID)
		case v.event == duplicateMessage: // the checkpoint that took it may not have got to tell the row
			err = h.repairRunning(ctx, instanceID, stored)
		}
	case fateDeliver:
	}
	if err == nil { // whoever took it may not have got to record what became of it
		err = h.trackAgain(ctx, instanceID)
	}
	if err != nil {
		d.abandon(ctx, err.Error())
		return
	}
	h.log.Warn(v.event, d.attrs("reason", v.reason)...)
	if err := d.remove(ctx); err != nil && !errors.Is(err, context.Canceled) {
		h.log.Warn("message could not be deleted, it comes back by itself", d.attrs("error", err)...)
	}
}

// startPatience bounds how long a message is held back whose instance is due to
// start but has not yet.
const startPatience = 10 * time.Second

// startDelay returns how long to hold back a message, received so many times,
// for an instance that is to start at the given time, or at once if that is
// zero. The delay grows as usual, but the message comes with the start and not
// long after it.
func startDelay(scheduled time.Time, dequeueCount int, now time.Time) time.Duration {
	delay := abandonDelay(dequeueCount)
	if ahead := scheduled.Sub(now); ahead > 0 {
		return min(delay, ahead.Truncate(time.Second)+time.Second)
	}
	return min(delay, startPatience)
}
