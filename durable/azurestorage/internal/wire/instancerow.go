package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// EncodeNewInstance returns the row of an instance that a client creates, to be
// inserted, or to replace that of an earlier instance with the same ID
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// SetNewExecutionAsync). If the start message went to a blob, inputURL is the
// blob's address and stands for the input; else it is empty.
func EncodeNewInstance(start *history.ExecutionStarted, taskHub, inputURL string, now time.Time) Row {
	e := Row{PartitionKey: EscapeKey(start.Instance.InstanceID)}
	if inputURL != "" {
		e.SetString("Input", inputURL)
	} else {
		e.SetInline("Input", start.Input)
	}
	e.SetTime("CreatedTime", start.Timestamp)
	e.SetTime(FirstCreatedColumn, start.Timestamp)
	e.SetName(start.Name)
	e.SetString("Version", start.Version)
	e.SetString("RuntimeStatus", history.Pending.String())
	e.SetTime("LastUpdatedTime", now)
	e.SetString("TaskHubName", taskHub)
	e.SetOptionalTime("ScheduledStartTime", start.ScheduledStart)
	e.SetString("ExecutionId", start.Instance.ExecutionID)
	if start.Generation != nil {
		e.SetInt("Generation", *start.Generation)
	}
	e.SetString("Tags", TagsColumn(start.Tags))
	e.Fit()
	return e
}

// FirstCreatedColumn is a column that .NET does not have. Checkpoints, which are
// merged into the row, leave it alone, also those of .NET; a start replaces the row,
// and the first checkpoint of a child sets it.
const FirstCreatedColumn = "FirstCreatedTime"

// DirectStartColumn is a column that .NET does not have. It has the time at which a worker
// inserted the row of an instance whose start it hands over in memory. Together with the
// status Pending it marks a start that may have no message. Later writes leave the column
// alone, so it counts only while LastUpdatedTime has the same value.
const DirectStartColumn = "DirectStartTime"

// SetName sets the name of an instance's orchestrator. Readers do not look for
// it in a blob.
func (e *Row) SetName(name string) { e.SetString("Name", fitted("Name", name, MaxColumnUnits)) }

// OffloadAsURL replaces the value of a column of an instance row by the address
// of the blob that has it. Status queries of .NET resolve this, but not the form
// that offload makes.
func (e *Row) OffloadAsURL(column, url string) { e.SetString(column, url) }

// SetInline sets Input or Output to a value, not a reference. It keeps readers
// in .NET from taking it for one.
func (e *Row) SetInline(column string, v *string) {
	if v != nil && looksLikeURI(*v) {
		v = new(*v + " ")
	}
	e.setOptional(column, v)
}

// An InstanceCheckpoint is the part of a checkpoint that changes the instance's row.
type InstanceCheckpoint struct {
	Instance history.OrchestrationInstance // the execution that Events belong to
	TaskHub  string
	// Events are the new events of the history, at least one.
	Events []history.Event
	// Rows are the history rows of Events after their large columns were
	// offloaded, one for each event.
	Rows []Row
	// BlobURL returns the address of a blob with a large column.
	BlobURL func(blobName string) string
	// CustomStatus is JSON text; nil if there is none.
	CustomStatus *string
	// Now becomes the time of completion of an instance that ends.
	Now time.Time
	// IsNew says that the row begins an instance which no client started.
	IsNew bool
	// Replaced are the blobs of the generation before, which will be deleted.
	Replaced []string
}

// EncodeInstanceCheckpoint returns what a checkpoint changes in the instance's
// row, to be inserted or merged (AzureTableTrackingStore.cs, UpdateStateAsync).
func EncodeInstanceCheckpoint(c InstanceCheckpoint) Row {
	e := Row{PartitionKey: EscapeKey(c.Instance.InstanceID), Properties: make([]property, 0, 16)}
	customStatus := JSONNull
	if c.CustomStatus != nil {
		customStatus = *c.CustomStatus
	}
	e.SetString("CustomStatus", customStatus)
	e.SetString("ExecutionId", c.Instance.ExecutionID)
	e.SetTime("LastUpdatedTime", c.Events[len(c.Events)-1].Head().Timestamp)
	e.SetString("TaskHubName", c.TaskHub)
	if slices.ContainsFunc(c.Replaced, isReason) {
		e.SetString("Output", "") // it may name the blob
	}
	for i, ev := range c.Events {
		switch ev := ev.(type) {
		case *history.ExecutionStarted:
			e.SetName(ev.Name)
			e.SetString("Version", ev.Version)
			e.SetTime("CreatedTime", ev.Timestamp)
			if c.IsNew {
				e.SetTime(FirstCreatedColumn, ev.Timestamp)
			}
			e.SetString("RuntimeStatus", history.Running.String())
			e.SetString("Tags", TagsColumn(ev.Tags))
			if i < len(c.Rows) {
				if blob := c.Rows[i].OffloadedTo("Tags"); blob != "" {
					e.Offload("Tags", blob) // .NET does not, and the service refuses its row
				}
			}
			if ev.Generation != nil {
				e.SetInt("Generation", *ev.Generation)
			}
			if !ev.ScheduledStart.IsZero() {
				e.SetTime("ScheduledStartTime", ev.ScheduledStart)
			}
			e.setFromHistory("Input", c, i, "Input", ev.Input)
		case *history.ExecutionCompleted:
			e.SetString("RuntimeStatus", ev.Status.String())
			e.SetTime("CompletedTime", c.Now)
			output := ev.Result
			if ev.Failure != nil {
				output = new(ev.Failure.String())
			}
			e.setFromHistory("Output", c, i, "Result", output)
		case *history.ExecutionTerminated:
			e.SetString("RuntimeStatus", history.Terminated.String())
			e.SetTime("CompletedTime", c.Now)
			e.setFromHistory("Output", c, i, "Input", ev.Reason)
		case *history.ExecutionSuspended:
			e.SetString("RuntimeStatus", history.Suspended.String())
			e.setFromHistory("Output", c, i, "Reason", ev.Reason)
		case *history.ExecutionResumed:
			e.SetString("RuntimeStatus", history.Running.String())
			e.setFromHistory("Output", c, i, "Reason", ev.Reason)
		case *history.ContinueAsNew:
			e.SetString("RuntimeStatus", history.ContinuedAsNew.String())
			e.setFromHistory("Output", c, i, "Result", ev.Result)
		}
	}
	e.Fit()
	return e
}

// isReason reports whether a blob has the reason for which an instance was suspended or
// resumed, which the instance's row has as its output.
func isReason(blob string) bool { return strings.HasSuffix(blob, "-Reason.json.gz") }

// setFromHistory sets column to value, or, if a column of the event's history
// row went to a blob, to the address of the blob (AzureTableTrackingStore.cs,
// SetInstancesTablePropertyFromHistoryProperty). A failure's output is longer
// than the Result that decides this; what does not fit is cut off, since a
// refused row would block the instance for ever.
func (e *Row) setFromHistory(column string, c InstanceCheckpoint, event int, historyColumn string, value *string) {
	if event < len(c.Rows) {
		if blob := c.Rows[event].OffloadedTo(historyColumn); blob != "" {
			e.SetString(column, c.BlobURL(blob))
			return
		}
	}
	if value != nil {
		value = new(fitted(column, *value, MaxColumnUnits))
	}
	e.SetInline(column, value)
}

// EncodeEndedBeforeStart returns what to merge into the row of an instance
// that ended before it started. at is the time of the event that ended it
// (AzureTableTrackingStore.cs, UpdateStatusForTerminationAsync).
func EncodeEndedBeforeStart(instanceID string, status history.RuntimeStatus, reason *string, at, now time.Time) Row {
	e := Row{PartitionKey: EscapeKey(instanceID)}
	e.SetString("RuntimeStatus", status.String())
	e.SetTime("LastUpdatedTime", at)
	e.SetTime("CompletedTime", now)
	e.SetInline("Output", reason)
	return e
}

// EncodeRewound returns what to merge into the row of an instance that was
// rewound (AzureTableTrackingStore.cs, UpdateStatusForRewindAsync).
func EncodeRewound(instanceID string, now time.Time) Row {
	e := Row{PartitionKey: EscapeKey(instanceID)}
	e.SetString("RuntimeStatus", history.Pending.String())
	e.SetTime("LastUpdatedTime", now)
	return e
}

// An InstanceRow is a row of the instances table as it was read.
type InstanceRow struct {
	// State has the columns. Its Input and Output are as stored: values, or
	// references that [BlobNameFromURL] knows.
	State provider.InstanceState
	// Generation is nil if the row has none.
	Generation *int
	// InputBlob names the blob that has the input, if the row says so; Input is
	// then empty.
	InputBlob string
	// TagsBlob names the blob that has the tags, if the row says so.
	TagsBlob string
	ETag     string
	// DirectStartAt is the value of [DirectStartColumn], zero if the row has none.
	DirectStartAt time.Time
}

// AwaitsDirectStart reports whether the row is as the worker inserted it that hands the start
// over in memory.
func (r *InstanceRow) AwaitsDirectStart() bool {
	return r.State.Status == history.Pending && !r.DirectStartAt.IsZero() && r.DirectStartAt.Equal(r.State.LastUpdatedAt)
}

// StateOrNil returns what the row says, nil if there is no row.
func (r *InstanceRow) StateOrNil() *provider.InstanceState {
	if r == nil {
		return nil
	}
	return &r.State
}

// Began makes the row say what [EncodeInstanceCheckpoint] writes of a start.
func (r *InstanceRow) Began(start *history.ExecutionStarted, isNew bool) {
	s := &r.State
	s.Name, s.Version, s.Tags, s.CreatedAt = start.Name, start.Version, start.Tags, start.Timestamp
	if isNew {
		s.FirstCreatedAt = start.Timestamp
	}
	if start.Generation != nil {
		r.Generation, s.Generation = start.Generation, *start.Generation
	}
	if !start.ScheduledStart.IsZero() {
		s.ScheduledAt = start.ScheduledStart
	}
}

// IsReplacing reports whether the row is of another execution that is yet to start.
func (r *InstanceRow) IsReplacing(instance history.OrchestrationInstance) bool {
	return r != nil && r.State.Instance.ExecutionID != instance.ExecutionID && r.State.Status == history.Pending
}

// InstanceColumns returns the columns to select for what is wanted.
func InstanceColumns(fetch provider.Fetch) []string {
	columns := []string{
		"PartitionKey", "RowKey", "ExecutionId", "Name", "Version", "CustomStatus", "CreatedTime", "LastUpdatedTime",
		"CompletedTime", "RuntimeStatus", "ScheduledStartTime", "Generation", "Tags",
		"TagsBlobName", FirstCreatedColumn, DirectStartColumn,
	}
	if fetch.Input {
		columns = append(columns, "Input", "InputBlobName")
	}
	if fetch.Output {
		columns = append(columns, "Output")
	}
	return columns
}

// DecodeInstanceRow reads a row as the table service returns it. Columns that
// were not selected are zero. A status that is unknown becomes -1, as in .NET
// (AzureTableTrackingStore.cs, ConvertFromAsync).
func DecodeInstanceRow(raw []byte) (*InstanceRow, error) {
	var c struct {
		ETag               string `json:"odata.etag"`
		PartitionKey       string
		ExecutionID        string `json:"ExecutionId"`
		Name               string
		Version            string
		Input              *string
		InputBlobName      string
		Output             *string
		CustomStatus       *string
		CreatedTime        eventjson.Time
		FirstCreatedTime   eventjson.Time
		DirectStartTime    eventjson.Time
		LastUpdatedTime    eventjson.Time
		CompletedTime      eventjson.Time
		RuntimeStatus      string
		ScheduledStartTime eventjson.Time
		Generation         *int
		Tags               string
		TagsBlobName       string
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("decode row of instance %q: %w", UnescapeKey(c.PartitionKey), err)
	}
	r := &InstanceRow{ETag: c.ETag, InputBlob: c.InputBlobName, TagsBlob: c.TagsBlobName, Generation: c.Generation, DirectStartAt: c.DirectStartTime.Time}
	r.State = provider.InstanceState{
		Instance:      history.OrchestrationInstance{InstanceID: UnescapeKey(c.PartitionKey), ExecutionID: c.ExecutionID},
		Name:          c.Name,
		Version:       c.Version,
		Status:        -1,
		Input:         c.Input,
		Output:        c.Output,
		CreatedAt:     c.CreatedTime.Time,
		LastUpdatedAt: c.LastUpdatedTime.Time,
		CompletedAt:   c.CompletedTime.Time,
		ScheduledAt:   c.ScheduledStartTime.Time,

		FirstCreatedAt: c.FirstCreatedTime.Time,
	}
	if status, ok := history.ParseRuntimeStatus(c.RuntimeStatus); ok {
		r.State.Status = status
	}
	if !r.State.Status.IsTerminal() && c.Output != nil && *c.Output == "" {
		r.State.Output = nil // a checkpoint took it back
	}
	if c.CustomStatus != nil && *c.CustomStatus != JSONNull {
		r.State.CustomStatus = c.CustomStatus
	}
	if c.Generation != nil {
		r.State.Generation = *c.Generation
	}
	if err := r.DecodeTags(c.Tags); err != nil {
		return nil, err
	}
	return r, nil
}

// DecodeTags reads the tags from a column's text or from the blob that has it.
func (r *InstanceRow) DecodeTags(text string) error {
	if text == "" || text == JSONNull {
		return nil
	}
	var tags eventjson.Tags
	if err := json.Unmarshal([]byte(text), &tags); err != nil {
		return &DamageError{Cause: fmt.Errorf("decode row of instance %q: column Tags: %w", r.State.Instance.InstanceID, err)}
	}
	r.State.Tags = tags
	return nil
}
