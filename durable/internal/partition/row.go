package partition

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// row is the record of an instance without its history.
type row struct {
	// number identifies the current execution in keys. Each new execution gets a greater
	// number.
	number uint64
	// The instance ID is the record's key, not part of it. LastUpdatedAt is used only if the
	// execution has no history, has ended, or was rewound later than its last event. Payloads
	// with records of their own are unread.
	provider.InstanceState
}

// unread stands for a payload that is in payloadsTable and was not read.
var unread = new("")

// The number of each payload in keys of payloadsTable.
const (
	inputPayload = iota
	outputPayload
	customPayload
)

// payloads returns pointers to the payloads, indexed by their numbers.
func (r *row) payloads() [3]**string {
	return [...]**string{inputPayload: &r.Input, outputPayload: &r.Output, customPayload: &r.CustomStatus}
}

// maxInline is the maximum length, in bytes, of a payload that is stored in the row. Longer
// payloads have their own records: the row is rewritten with every change.
const maxInline = 512

// isSeparate reports whether a payload is stored in a record of its own.
func isSeparate(payload *string) bool {
	return payload == unread || payload != nil && len(*payload) > maxInline
}

// commit applies a checkpoint with new events to r. It reports whether r must be stored;
// changes that can be derived from the history need no write.
func (r *row) commit(cp *provider.Checkpoint) (changed bool) {
	was := r.InstanceState
	changed = r.Commit(cp)
	if !was.CreatedAt.IsZero() && was.Instance.ExecutionID == r.Instance.ExecutionID {
		r.Input = was.Input // stored by the start
	}
	return changed || was.CustomStatus == unread || !equalText(was.CustomStatus, r.CustomStatus)
}

// isStartedBy reports whether start created the instance's current execution or an earlier generation
// of it.
func (r *row) isStartedBy(start *history.ExecutionStarted) bool {
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
