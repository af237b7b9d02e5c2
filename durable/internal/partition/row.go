package partition

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// row is the record of an instance, beside its history.
type row struct {
	// number names the current execution in keys. Each execution has its own, and
	// later ones have greater ones.
	number uint64
	// The instance ID is the record's key. LastUpdatedAt counts for an execution
	// without history and for one that was rewound; else the time of the history's
	// last event does. Payloads with records of their own are unread.
	provider.InstanceState
}

// unread stands for a payload that has a record of its own.
var unread = new("")

// The payloads of an instance, as numbers in keys.
const (
	inputPayload = iota
	outputPayload
	customPayload
)

// payloads returns the texts of a row that can be large, by their numbers.
func (r *row) payloads() [3]**string {
	return [...]**string{inputPayload: &r.Input, outputPayload: &r.Output, customPayload: &r.CustomStatus}
}

// maxInline is the length up to which a payload is stored in the row. A longer one
// would be written again with every change of the row.
const maxInline = 512

// isApart reports whether a payload has, or gets, a record of its own.
func isApart(payload *string) bool {
	return payload == unread || payload != nil && len(*payload) > maxInline
}

// commit brings r up to date by a checkpoint with new events, and reports whether
// r has to be stored: the history has what only adds to it.
func (r *row) commit(cp *provider.Checkpoint) (changed bool) {
	was := r.InstanceState
	changed = r.Commit(cp)
	if !was.CreatedAt.IsZero() && was.Instance.ExecutionID == r.Instance.ExecutionID {
		r.Input = was.Input // stored with the start
	}
	return changed || was.CustomStatus == unread || !equalText(was.CustomStatus, r.CustomStatus)
}

// isOf reports whether it was start that began the instance, in this generation or in one
// before.
func (r *row) isOf(start *history.ExecutionStarted) bool {
	if r.Instance.ExecutionID == start.Instance.ExecutionID {
		return true
	}
	continued := r.CreatedAt.After(r.FirstCreatedAt)
	return continued && r.Name == start.Name && r.FirstCreatedAt.Equal(start.Timestamp)
}

func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
