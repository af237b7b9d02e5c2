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

// EncodeNewInstance returns the row of an instance that a client starts. It is inserted, or replaces
// the row of an earlier instance with the same ID
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, SetNewExecutionAsync). If the start
// message is in a blob, inputURL is the blob's URL and replaces the input; otherwise it is empty.
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
	e.ShortenColumns()
	return e
}

// FirstCreatedColumn is the column with the time of the instance's first creation. .NET does not have
// it. Checkpoints, including .NET's, are merged into the row and do not change the column. A start
// replaces the row, and the first checkpoint of a child sets the column.
const FirstCreatedColumn = "FirstCreatedTime"

// DirectStartColumn is the column with the time at which a worker inserted the row of an instance
// whose start it delivers in memory. .NET does not have it. Together with the status Pending it marks
// a start that may have no message. Later writes do not change the column. It is therefore valid only
// while LastUpdatedTime has the same value.
const DirectStartColumn = "DirectStartTime"

// SetName sets the name of the orchestrator, shortened if necessary. Readers do not look for the name
// in a blob.
func (e *Row) SetName(name string) { e.SetString("Name", fitted("Name", name, MaxColumnUnits)) }

// OffloadAsURL replaces the value of an instance row's column by the URL of its blob. .NET's status
// queries read blobs only by URL, not by the reference that [Row.Offload] writes.
func (e *Row) OffloadAsURL(column, url string) { e.SetString(column, url) }

// SetInline sets Input or Output to a value. It changes a value that .NET would interpret as a
// reference to a blob.
func (e *Row) SetInline(column string, v *string) {
	if v != nil && looksLikeURI(*v) {
		v = new(*v + " ")
	}
	e.setOptional(column, v)
}

// An InstanceCheckpoint contains the data of a checkpoint that changes the instance row.
type InstanceCheckpoint struct {
	Instance history.OrchestrationInstance // the execution of Events
	TaskHub  string
	// Events are the new events of the history, at least one.
	Events []history.Event
	// Rows are the history rows of Events, with their large columns offloaded.
	Rows []Row
	// BlobURL returns the URL of a blob with a large column.
	BlobURL func(blobName string) string
	// CustomStatus is JSON text; nil if the instance has none.
	CustomStatus *string
	// Now is the completion time of an instance that ends.
	Now time.Time
	// IsNew means that the checkpoint creates the row of an instance that no client started.
	IsNew bool
	// Replaced lists the blobs of the previous generation, which will be deleted.
	Replaced []string
}

// EncodeInstanceCheckpoint returns the changes of a checkpoint to the instance row, to be inserted or
// merged (AzureTableTrackingStore.cs, UpdateStateAsync).
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
		e.SetString("Output", "") // the output may refer to the blob
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
				if blob := c.Rows[i].BlobOf("Tags"); blob != "" {
					e.Offload("Tags", blob) // .NET does not offload tags, and the service then rejects its row
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
	e.ShortenColumns()
	return e
}

// isReason reports whether a blob contains the reason of a suspension or a resumption. The instance
// row has this reason as its output.
func isReason(blob string) bool { return strings.HasSuffix(blob, "-Reason.json.gz") }

// setFromHistory sets column to value, or to the URL of the blob if the event's history column is in a
// blob (AzureTableTrackingStore.cs, SetInstancesTablePropertyFromHistoryProperty). The output of a
// failure is longer than the Result in the history. It is shortened if it does not fit, because a
// rejected row would block the instance.
func (e *Row) setFromHistory(column string, c InstanceCheckpoint, event int, historyColumn string, value *string) {
	if event < len(c.Rows) {
		if blob := c.Rows[event].BlobOf(historyColumn); blob != "" {
			e.SetString(column, c.BlobURL(blob))
			return
		}
	}
	if value != nil {
		value = new(fitted(column, *value, MaxColumnUnits))
	}
	e.SetInline(column, value)
}

// EncodeEndedBeforeStart returns the changes to the row of an instance that ends before it has
// started. at is the time of the event that ends it (AzureTableTrackingStore.cs,
// UpdateStatusForTerminationAsync).
func EncodeEndedBeforeStart(instanceID string, status history.RuntimeStatus, reason *string, at, now time.Time) Row {
	e := Row{PartitionKey: EscapeKey(instanceID)}
	e.SetString("RuntimeStatus", status.String())
	e.SetTime("LastUpdatedTime", at)
	e.SetTime("CompletedTime", now)
	e.SetInline("Output", reason)
	return e
}

// EncodeRewound returns the changes to the row of a rewound instance (AzureTableTrackingStore.cs,
// UpdateStatusForRewindAsync).
func EncodeRewound(instanceID string, now time.Time) Row {
	e := Row{PartitionKey: EscapeKey(instanceID)}
	e.SetString("RuntimeStatus", history.Pending.String())
	e.SetTime("LastUpdatedTime", now)
	return e
}

// An InstanceRow is a decoded row of the instances table.
type InstanceRow struct {
	// State contains the columns. Input and Output are as stored: values, or references that
	// [BlobNameFromURL] recognizes.
	State provider.InstanceState
	// Generation is nil if the row has none.
	Generation *int
	// InputBlob is the name of the blob with the input; Input is then empty.
	InputBlob string
	// TagsBlob is the name of the blob with the tags.
	TagsBlob string
	ETag     string
	// DirectStartAt is the value of [DirectStartColumn], zero if the row has none.
	DirectStartAt time.Time
}

// AwaitsDirectStart reports whether the row is unchanged since a worker inserted it for a start that
// is delivered in memory.
func (r *InstanceRow) AwaitsDirectStart() bool {
	return r.State.Status == history.Pending && !r.DirectStartAt.IsZero() && r.DirectStartAt.Equal(r.State.LastUpdatedAt)
}

// StateOrNil returns the state of the row, nil for a nil row.
func (r *InstanceRow) StateOrNil() *provider.InstanceState {
	if r == nil {
		return nil
	}
	return &r.State
}

// ApplyStart changes the row as [EncodeInstanceCheckpoint] does for a start.
func (r *InstanceRow) ApplyStart(start *history.ExecutionStarted, isNew bool) {
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

// BelongsToOtherPending reports whether the row belongs to another, pending execution.
func (r *InstanceRow) BelongsToOtherPending(instance history.OrchestrationInstance) bool {
	return r != nil && r.State.Instance.ExecutionID != instance.ExecutionID && r.State.Status == history.Pending
}

// InstanceColumns returns the columns to select for fetch.
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

// DecodeInstanceRow decodes a row in the table service's format. Columns that were not selected are
// zero. An unknown status becomes -1, as in .NET (AzureTableTrackingStore.cs, ConvertFromAsync).
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
		r.State.Output = nil // a checkpoint removed it, see EncodeInstanceCheckpoint
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

// DecodeTags decodes the tags from the text of a column or of a blob.
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
