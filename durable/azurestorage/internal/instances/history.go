package instances

import (
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// History is the history of one execution.
type History struct {
	ExecutionID string
	Events      []history.Event
	Known       *KnownEvents
	ETag        string   // of the sentinel, empty if there is none
	Blobs       []string // that hold columns of the rows
	bytes       int      // roughly, of the rows
	Tracked     tracking.State
	Current     Generation
	Batches     string // that counted, of an entity: see [wire.EntityBatches]
	Run         string // the mark of this process's batches of an entity since it read this, empty if there was none
}

// Generation is what the sentinel says of whose the history is.
type Generation struct {
	ExecutionID string
	First       string // the execution of which it is a later generation, empty if it is the first itself
}

// First returns the execution of which the stored one is a later generation,
// empty if it is the first itself or has no history.
func (s *History) First() string {
	if s.Current.ExecutionID != s.ExecutionID {
		return ""
	}
	return s.Current.First
}

// HasContinued reports whether an execution has had its history and continued as
// new since.
func (s *History) HasContinued(executionID string) bool {
	return executionID != "" && executionID == s.Current.First && executionID != s.Current.ExecutionID
}

// Unsent returns the rows of the tracking records that may not have been sent, and takes
// them for sent.
func (s *History) Unsent(instanceID string) ([]wire.Row, error) {
	return s.Tracked.Unsent(history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: s.ExecutionID}, s.Events)
}

// currentExecution picks the event rows of the wanted execution, or of the
// current one, out of an instance's rows in the order of their keys. Rows of an
// older and longer execution may follow; they are leftovers.
func currentExecution(rows []*wire.HistoryRow, wanted string) ([]*wire.HistoryRow, History) {
	stored := History{ExecutionID: wanted, Known: NewKnownEvents()}
	var sentinel *wire.HistoryRow
	for _, row := range rows {
		if row.IsSentinel() {
			sentinel = row
		}
	}
	if sentinel != nil {
		stored.ETag, stored.Current.ExecutionID = sentinel.ETag(), sentinel.ExecutionID
		if sentinel.Columns != nil {
			stored.Tracked.Column, stored.Current.First = sentinel.Columns.Tracking, sentinel.Columns.FirstExecutionID
			stored.Batches = sentinel.Columns.EntityBatches
		}
	}
	if len(rows) == 0 || wanted != "" && (sentinel == nil || sentinel.ExecutionID != wanted) {
		return nil, stored
	}
	stored.ExecutionID = rows[0].ExecutionID
	if sentinel != nil {
		stored.ExecutionID = sentinel.ExecutionID
	}
	var current []*wire.HistoryRow
	for _, row := range rows {
		if row.ExecutionID != stored.ExecutionID {
			break
		}
		if row.IsSentinel() {
			continue
		}
		for _, b := range row.Blobs() {
			stored.Blobs = append(stored.Blobs, b.Blob)
		}
		current = append(current, row)
	}
	return current, stored
}
