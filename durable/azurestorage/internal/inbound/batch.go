package inbound

import (
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
)

// messageBatch holds messages of one execution that are delivered together.
type messageBatch struct {
	executionID string // empty if no message names an execution
	deliveries  []*inflight.Delivery
	loaded      *instances.Instance // nil until loaded
}

// join adds earlier messages to the batch, in front of its messages. It adds at most one start, which
// becomes the first message. It returns the messages that do not belong to the batch.
func (b *messageBatch) join(earlier []*inflight.Delivery) (others []*inflight.Delivery) {
	var start, joined []*inflight.Delivery
	if b.deliveries[0].IsStart() {
		start, b.deliveries = b.deliveries[:1:1], b.deliveries[1:]
	}
	for _, d := range earlier {
		switch {
		case b.executionID != "" && !matches(d.Target().ExecutionID, b.executionID), d.IsStart() && start != nil:
			others = append(others, d)
		case d.IsStart():
			start, b.executionID = []*inflight.Delivery{d}, d.Target().ExecutionID
		default:
			joined = append(joined, d)
		}
	}
	b.deliveries = slices.Concat(start, joined, b.deliveries)
	return others
}

// executionOf returns the execution that the messages name, or "" if none of them names one.
func executionOf(deliveries []*inflight.Delivery) string {
	for _, d := range deliveries {
		if id := d.Target().ExecutionID; id != "" {
			return id
		}
	}
	return ""
}

// matches reports whether a message for the execution wanted can be for the execution known. An
// empty wanted stands for any execution.
func matches(wanted, known string) bool { return wanted == "" || wanted == known }

// without returns the elements of all that are not in some. It modifies all.
func without(all, some []*inflight.Delivery) []*inflight.Delivery {
	return slices.DeleteFunc(all, func(d *inflight.Delivery) bool { return slices.Contains(some, d) })
}
