package azurestorage

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// disposals are judged messages: those to hand out, and those to do away with.
type disposals struct {
	deliver  []*delivery
	settled  []*delivery // held back, discarded and so on
	verdicts []verdict   // of settled
}

// judge decides about deliveries for an instance by judgeMessages.
func judge(instanceID string, stored *instances.Instance, deliveries []*delivery) disposals {
	messages := make([]arrived, len(deliveries))
	for i, d := range deliveries {
		messages[i] = arrived{
			event: d.event(), executionID: d.target().ExecutionID,
			dequeueCount: d.dequeueCount, receivedAt: d.receivedAt,
			age: d.age, lock: d.lock, scheduled: d.env.Scheduled,
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
func (o disposals) apply(ctx context.Context, h *TaskHub, instanceID string, stored *instances.Instance) {
	// What is put right for one message is for all that came together.
	repaired := map[repair]error{}
	for _, v := range o.verdicts {
		r := repairFor(v)
		if _, done := repaired[r]; !done {
			repaired[r] = h.repair(ctx, r, instanceID, stored)
		}
	}
	var group errgroup.Group
	group.SetLimit(renewalsAtOnce)
	for i, d := range o.settled {
		v := o.verdicts[i]
		group.Go(func() error {
			h.dispose(ctx, instanceID, stored, d, v, repaired[repairFor(v)])
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

// A repair is what has to be put right before a message may go. Whoever took it may
// not have got to tell the row, or the audit, what became of it.
type repair int

const (
	noRepair repair = iota
	repairAudit
	repairEnded   // the row of an execution that has ended
	repairCurrent // that of whatever execution is the current one
	repairRunning // that of an execution that goes on
)

func repairFor(v verdict) repair {
	switch {
	case v.fate == fateRepair:
		return repairEnded
	case v.fate != fateDiscard:
		return noRepair
	case v == foreign, v == continued: // it may be what is left of a generation that was followed by others
		return repairCurrent
	case v.event == duplicateMessage:
		return repairRunning
	}
	return repairAudit
}

func (h *TaskHub) repair(ctx context.Context, r repair, instanceID string, stored *instances.Instance) (err error) {
	switch r {
	case noRepair:
		return nil
	case repairEnded:
		err = h.instances.RepairEnded(ctx, instanceID, stored)
	case repairCurrent:
		err = h.instances.RepairCurrent(ctx, instanceID)
	case repairRunning:
		err = h.instances.RepairRunning(ctx, instanceID, stored)
	case repairAudit:
	}
	if err != nil {
		return err
	}
	return h.tracking.again(ctx, instanceID)
}

// dispose does away with a message, unless err says that what it is about could not
// be put right.
func (h *TaskHub) dispose(ctx context.Context, instanceID string, stored *instances.Instance, d *delivery, v verdict, err error) {
	switch v.fate {
	case fateHoldBack:
		if v == notYetStarted && stored.Row != nil {
			d.abandonFor(ctx, v.event, startDelay(&stored.Row.State, d.receives(), time.Now()), v.reason)
			return
		}
		d.abandonAs(ctx, v.event, v.reason)
		return
	case fateTerminate:
		event, _ := d.event().(*history.ExecutionTerminated)
		if err = h.instances.TerminateUnstarted(ctx, instanceID, stored, event); err == nil {
			err = h.tracking.again(ctx, instanceID)
		}
	case fateDeliver, fateRepair, fateDiscard:
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

// startPatience bounds how long a message is held back whose instance is just due
// to start but has not yet.
const startPatience = 10 * time.Second

// startDelay returns how long to hold back a message, received so many times, for
// an instance that has not started. The delay grows as usual, but the message
// comes with the start and not long after it: if the start is late, by a quarter
// of what it is late at most.
func startDelay(s *provider.InstanceState, dequeueCount int, now time.Time) time.Duration {
	delay := abandonDelay(dequeueCount)
	late := now.Sub(dueSince(s))
	if late < 0 {
		return min(delay, (-late).Truncate(time.Second)+time.Second)
	}
	return min(delay, max(startPatience, (late/4).Truncate(time.Second)))
}
