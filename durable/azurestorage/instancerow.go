package azurestorage

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// encodeNewInstance returns the row of an instance that a client creates, to be
// inserted, or to replace that of an earlier instance with the same ID
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// SetNewExecutionAsync). If the start message went to a blob, inputURL is the
// blob's address and stands for the input; else it is empty.
func encodeNewInstance(start *history.ExecutionStarted, taskHub, inputURL string, now time.Time) entity {
	e := entity{PartitionKey: escapeKey(start.Instance.InstanceID)}
	if inputURL != "" {
		e.setString("Input", inputURL)
	} else {
		e.setInline("Input", start.Input)
	}
	e.setTime("CreatedTime", start.Timestamp)
	e.setTime(firstCreatedColumn, start.Timestamp)
	e.setName(start.Name)
	e.setString("Version", start.Version)
	e.setString("RuntimeStatus", history.Pending.String())
	e.setTime("LastUpdatedTime", now)
	e.setString("TaskHubName", taskHub)
	e.setOptionalTime("ScheduledStartTime", start.ScheduledStart)
	e.setString("ExecutionId", start.Instance.ExecutionID)
	if start.Generation != nil {
		e.setInt("Generation", *start.Generation)
	}
	e.setString("Tags", tagsColumn(start.Tags))
	e.fit()
	return e
}

// firstCreatedColumn is a column that .NET does not have. Checkpoints, which are
// merged into the row, leave it alone, also those of .NET; a start replaces the row,
// and the first checkpoint of a child sets it.
const firstCreatedColumn = "FirstCreatedTime"

// setName sets the name of an instance's orchestrator. Readers do not look for
// it in a blob.
func (e *entity) setName(name string) { e.setString("Name", fitted("Name", name, maxColumnUnits)) }

// offloadAsURL replaces the value of a column of an instance row by the address
// of the blob that has it. Status queries of .NET resolve this, but not the form
// that offload makes.
func (e *entity) offloadAsURL(column, url string) { e.setString(column, url) }

// setInline sets Input or Output to a value, not a reference. It keeps readers
// in .NET from taking it for one.
func (e *entity) setInline(column string, v *string) {
	if v != nil && looksLikeURI(*v) {
		v = new(*v + " ")
	}
	e.setOptional(column, v)
}

// An instanceCheckpoint is what a checkpoint means for the instance's row.
type instanceCheckpoint struct {
	Instance history.OrchestrationInstance // the execution that Events belong to
	TaskHub  string
	// Events are the new events of the history, at least one.
	Events []history.Event
	// Rows are the history rows of Events after their large columns were
	// offloaded, one for each event.
	Rows []entity
	// BlobURL returns the address of a blob with a large column.
	BlobURL func(blobName string) string
	// CustomStatus is JSON text; nil if there is none.
	CustomStatus *string
	// Now becomes the time of completion of an instance that ends.
	Now time.Time
	// IsNew says that the row is to be that of an instance which no client started.
	IsNew bool
}

// encodeInstanceCheckpoint returns what a checkpoint changes in the instance's
// row, to be inserted or merged (AzureTableTrackingStore.cs, UpdateStateAsync).
func encodeInstanceCheckpoint(c instanceCheckpoint) entity {
	e := entity{PartitionKey: escapeKey(c.Instance.InstanceID), properties: make([]property, 0, 16)}
	customStatus := jsonNull
	if c.CustomStatus != nil {
		customStatus = *c.CustomStatus
	}
	e.setString("CustomStatus", customStatus)
	e.setString("ExecutionId", c.Instance.ExecutionID)
	e.setTime("LastUpdatedTime", c.Events[len(c.Events)-1].Head().Timestamp)
	e.setString("TaskHubName", c.TaskHub)
	for i, ev := range c.Events {
		switch ev := ev.(type) {
		case *history.ExecutionStarted:
			e.setName(ev.Name)
			e.setString("Version", ev.Version)
			e.setTime("CreatedTime", ev.Timestamp)
			if c.IsNew {
				e.setTime(firstCreatedColumn, ev.Timestamp)
			}
			e.setString("RuntimeStatus", history.Running.String())
			e.setString("Tags", tagsColumn(ev.Tags))
			if i < len(c.Rows) {
				if blob := c.Rows[i].offloadedTo("Tags"); blob != "" {
					e.offload("Tags", blob) // .NET does not, and the service refuses its row
				}
			}
			if ev.Generation != nil {
				e.setInt("Generation", *ev.Generation)
			}
			if !ev.ScheduledStart.IsZero() {
				e.setTime("ScheduledStartTime", ev.ScheduledStart)
			}
			e.setFromHistory("Input", c, i, "Input", ev.Input)
		case *history.ExecutionCompleted:
			e.setString("RuntimeStatus", ev.Status.String())
			e.setTime("CompletedTime", c.Now)
			output := ev.Result
			if ev.Failure != nil {
				output = new(ev.Failure.String())
			}
			e.setFromHistory("Output", c, i, "Result", output)
		case *history.ExecutionTerminated:
			e.setString("RuntimeStatus", history.Terminated.String())
			e.setTime("CompletedTime", c.Now)
			e.setFromHistory("Output", c, i, "Input", ev.Reason)
		case *history.ExecutionSuspended:
			e.setString("RuntimeStatus", history.Suspended.String())
			e.setFromHistory("Output", c, i, "Reason", ev.Reason)
		case *history.ExecutionResumed:
			e.setString("RuntimeStatus", history.Running.String())
			e.setFromHistory("Output", c, i, "Reason", ev.Reason)
		case *history.ContinueAsNew:
			e.setString("RuntimeStatus", history.ContinuedAsNew.String())
			e.setFromHistory("Output", c, i, "Result", ev.Result)
		}
	}
	e.fit()
	return e
}

// setFromHistory sets column to value, or, if a column of the event's history
// row went to a blob, to the address of the blob (AzureTableTrackingStore.cs,
// SetInstancesTablePropertyFromHistoryProperty). A failure's output is longer
// than the Result that decides this; what does not fit is cut off, since a
// refused row would block the instance for ever.
func (e *entity) setFromHistory(column string, c instanceCheckpoint, event int, historyColumn string, value *string) {
	if event < len(c.Rows) {
		if blob := c.Rows[event].offloadedTo(historyColumn); blob != "" {
			e.setString(column, c.BlobURL(blob))
			return
		}
	}
	if value != nil {
		value = new(fitted(column, *value, maxColumnUnits))
	}
	e.setInline(column, value)
}

// encodeEndedBeforeStart returns what to merge into the row of an instance
// that ended before it started. at is the time of the event that ended it
// (AzureTableTrackingStore.cs, UpdateStatusForTerminationAsync).
func encodeEndedBeforeStart(instanceID string, status history.RuntimeStatus, reason *string, at, now time.Time) entity {
	e := entity{PartitionKey: escapeKey(instanceID)}
	e.setString("RuntimeStatus", status.String())
	e.setTime("LastUpdatedTime", at)
	e.setTime("CompletedTime", now)
	e.setInline("Output", reason)
	return e
}

// encodeRewound returns what to merge into the row of an instance that was
// rewound (AzureTableTrackingStore.cs, UpdateStatusForRewindAsync).
func encodeRewound(instanceID string, now time.Time) entity {
	e := entity{PartitionKey: escapeKey(instanceID)}
	e.setString("RuntimeStatus", history.Pending.String())
	e.setTime("LastUpdatedTime", now)
	return e
}

// An instanceRow is a row of the instances table as it was read.
type instanceRow struct {
	// State has the columns. Its Input and Output are as stored: values, or
	// references that blobNameFromURL knows.
	State provider.InstanceState
	// Generation is nil if the row has none.
	Generation *int
	// InputBlob names the blob that has the input, if the row says so; Input is
	// then empty.
	InputBlob string
	// TagsBlob names the blob that has the tags, if the row says so.
	TagsBlob string
	ETag     string
}

// state returns what the row says, nil if there is no row.
func (r *instanceRow) state() *provider.InstanceState {
	if r == nil {
		return nil
	}
	return &r.State
}

// began makes the row say what encodeInstanceCheckpoint writes of a start.
func (r *instanceRow) began(start *history.ExecutionStarted, isNew bool) {
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

// isReplacing reports whether the row is of another execution that is yet to start.
func (r *instanceRow) isReplacing(instance history.OrchestrationInstance) bool {
	return r != nil && r.State.Instance.ExecutionID != instance.ExecutionID && r.State.Status == history.Pending
}

// instanceColumns returns the columns to select for what is wanted.
func instanceColumns(fetch provider.Fetch) []string {
	columns := []string{
		"PartitionKey", "RowKey", "ExecutionId", "Name", "Version", "CustomStatus", "CreatedTime", "LastUpdatedTime",
		"CompletedTime", "RuntimeStatus", "ScheduledStartTime", "Generation", "Tags",
		"TagsBlobName", firstCreatedColumn,
	}
	if fetch.Input {
		columns = append(columns, "Input", "InputBlobName")
	}
	if fetch.Output {
		columns = append(columns, "Output")
	}
	return columns
}

// decodeInstanceRow reads a row as the table service returns it. Columns that
// were not selected are zero. A status that is unknown becomes -1, as in .NET
// (AzureTableTrackingStore.cs, ConvertFromAsync).
func decodeInstanceRow(raw []byte) (*instanceRow, error) {
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
		LastUpdatedTime    eventjson.Time
		CompletedTime      eventjson.Time
		RuntimeStatus      string
		ScheduledStartTime eventjson.Time
		Generation         *int
		Tags               string
		TagsBlobName       string
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("decode instance row: %w", err)
	}
	r := &instanceRow{ETag: c.ETag, InputBlob: c.InputBlobName, TagsBlob: c.TagsBlobName, Generation: c.Generation}
	r.State = provider.InstanceState{
		Instance:      history.OrchestrationInstance{InstanceID: unescapeKey(c.PartitionKey), ExecutionID: c.ExecutionID},
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
	if c.CustomStatus != nil && *c.CustomStatus != jsonNull {
		r.State.CustomStatus = c.CustomStatus
	}
	if c.Generation != nil {
		r.State.Generation = *c.Generation
	}
	if err := r.decodeTags(c.Tags); err != nil {
		return nil, err
	}
	return r, nil
}

// decodeTags reads the tags from a column's text or from the blob that has it.
func (r *instanceRow) decodeTags(text string) error {
	if text == "" || text == jsonNull {
		return nil
	}
	var tags eventjson.Tags
	if err := json.Unmarshal([]byte(text), &tags); err != nil {
		return &damageError{fmt.Errorf("decode instance row %q: column Tags: %w", r.State.Instance.InstanceID, err)}
	}
	r.State.Tags = tags
	return nil
}
