package azurestorage

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// A historyRow is a row of the history table as it was read: an event, or the
// sentinel.
type historyRow struct {
	RowKey      string
	ExecutionID string
	ETag        string
	quotedETag  []byte // in JSON, in the place of ETag
	size        int    // of the row as it was read, roughly in bytes

	eventType history.EventType // of no meaning in the sentinel
	scanned   history.Event     // what a rowScanner read
	columns   *historyColumns   // nil if a rowScanner read the row
}

// A columnBlob says that the value of a column is in a blob.
type columnBlob struct {
	Column string
	Blob   string // the blob's name
}

// historyColumns are the columns of all types of events, by name. Columns that
// are not listed are ignored.
type historyColumns struct {
	ETag        string `json:"odata.etag"`
	RowKey      string
	ExecutionID string `json:"ExecutionId"`
	EventType   string

	EventID   int `json:"EventId"`
	IsPlayed  bool
	Timestamp eventjson.Time `json:"_Timestamp"`

	Name                  string
	Version               string
	Input                 *string
	OrchestrationInstance string
	ParentInstance        string
	Tags                  string
	Correlation           *string
	ParentTraceContext    string
	ScheduledStartTime    eventjson.Time
	Generation            *int
	GenerateNewTrace      bool
	OrchestrationStatus   string
	Result                *string
	FailureDetails        string
	TaskScheduledID       int `json:"TaskScheduledId"`
	Reason                *string
	Details               *string
	InstanceID            *string `json:"InstanceId"`
	ClientSpanID          *string `json:"ClientSpanId"`
	ParentExecutionID     *string `json:"ParentExecutionId"`
	TimerID               int     `json:"TimerId"`
	FireAt                eventjson.Time
	Data                  *string
	State                 string
	Tracking              string // of the sentinel
	FirstExecutionID      string `json:"FirstExecutionId"` // of the sentinel
	EntityBatches         string // of the sentinel

	IsCheckpointComplete         bool           // of the sentinel
	CheckpointCompletedTimestamp eventjson.Time // of the sentinel

	NameBlobName           string
	InputBlobName          string
	ResultBlobName         string
	OutputBlobName         string
	ReasonBlobName         string
	DetailsBlobName        string
	CorrelationBlobName    string
	FailureDetailsBlobName string
	TagsBlobName           string
}

// decodeHistoryRow reads a row as the table service returns it. A row of a type
// that it does not know is an error: leaving it out would change what the
// orchestrator sees.
func decodeHistoryRow(raw []byte) (*historyRow, error) {
	s := rowScanner{rows: make([]historyRow, 1)}
	return s.row(raw)
}

// row is decodeHistoryRow for one of many rows.
func (s *rowScanner) row(raw []byte) (*historyRow, error) {
	if row, ok := s.decode(raw); ok {
		return row, nil
	}
	return decodeColumns(raw)
}

// decodeColumns reads any row.
func decodeColumns(raw []byte) (*historyRow, error) {
	r := &historyRow{columns: new(historyColumns)}
	if err := json.Unmarshal(raw, r.columns); err != nil {
		return nil, fmt.Errorf("decode history row: %w", err)
	}
	r.RowKey, r.ExecutionID, r.ETag = r.columns.RowKey, r.columns.ExecutionID, r.columns.ETag
	if r.isSentinel() {
		return r, nil
	}
	var ok bool
	if r.eventType, ok = history.ParseEventType(r.columns.EventType); !ok {
		return nil, fmt.Errorf("decode history row %q: unknown EventType %q", r.RowKey, r.columns.EventType)
	}
	return r, nil
}

// sameEvent reports whether two rows have the same event, as far as its type, its
// number and its time tell.
func (r *historyRow) sameEvent(other *historyRow) bool {
	id, at := r.head()
	otherID, otherAt := other.head()
	return r.eventType == other.eventType && id == otherID && at.Equal(otherAt)
}

func (r *historyRow) head() (id int, at time.Time) {
	if r.scanned != nil {
		return r.scanned.Head().EventID, r.scanned.Head().Timestamp
	}
	return r.columns.EventID, r.columns.Timestamp.Time
}

// etag returns the row's ETag, which few have a use for.
func (r *historyRow) etag() string {
	if r.quotedETag != nil {
		text, _ := unquoteJSON(nil, r.quotedETag)
		return string(text)
	}
	return r.ETag
}

// isSentinel reports whether the row is the sentinel, which has no event.
func (r *historyRow) isSentinel() bool { return r.RowKey == sentinelRowKey }

// blobs returns the columns whose values are in blobs and were not yet given to
// resolve.
func (r *historyRow) blobs() []columnBlob {
	if r.columns == nil {
		return nil
	}
	var blobs []columnBlob
	for _, column := range largeTextColumns {
		if blob := r.columns.blobName(column); *blob != "" {
			blobs = append(blobs, columnBlob{Column: column, Blob: *blob})
		}
	}
	return blobs
}

// resolve gives a column that blobs returned its value.
func (r *historyRow) resolve(column, text string) {
	c := r.columns
	*c.blobName(column) = ""
	switch column {
	case "Name":
		c.Name = text
	case "Input":
		c.Input = &text
	case "Result":
		c.Result = &text
	case "Reason":
		c.Reason = &text
	case "Details":
		c.Details = &text
	case "Correlation":
		c.Correlation = &text
	case "FailureDetails":
		c.FailureDetails = text
	case "Tags":
		c.Tags = text
	}
}

// blobName returns the column that names the blob of another column, which is
// one of largeTextColumns.
func (c *historyColumns) blobName(column string) *string {
	switch column {
	case "Name":
		return &c.NameBlobName
	case "Input":
		return &c.InputBlobName
	case "Result":
		return &c.ResultBlobName
	case "Output":
		return &c.OutputBlobName
	case "Reason":
		return &c.ReasonBlobName
	case "Details":
		return &c.DetailsBlobName
	case "Correlation":
		return &c.CorrelationBlobName
	case "FailureDetails":
		return &c.FailureDetailsBlobName
	case "Tags":
		return &c.TagsBlobName
	}
	panic("azurestorage: no values of column " + column + " are in blobs")
}

// event returns the event of a row that is not the sentinel and whose blobs are
// all resolved.
func (r *historyRow) event() (history.Event, error) {
	if r.scanned != nil {
		return r.scanned, nil
	}
	ev, err := r.decodeEvent()
	if err != nil {
		return nil, fmt.Errorf("decode history row %q, %s: %w", r.RowKey, r.eventType, err)
	}
	return ev, nil
}

func (r *historyRow) decodeEvent() (history.Event, error) {
	if blobs := r.blobs(); len(blobs) > 0 {
		return nil, fmt.Errorf("the value of %s is in blob %q, which was not read", blobs[0].Column, blobs[0].Blob)
	}
	c := r.columns
	e := eventjson.Event{
		EventID: c.EventID, IsPlayed: c.IsPlayed, Timestamp: c.Timestamp,
		Name: c.Name, Version: c.Version, Input: c.Input, Correlation: c.Correlation,
		ScheduledStartTime: c.ScheduledStartTime, Generation: c.Generation, GenerateNewTrace: c.GenerateNewTrace,
		Result: c.Result, TaskScheduledID: c.TaskScheduledID, Reason: c.Reason, Details: c.Details,
		InstanceID: c.InstanceID, ClientSpanID: c.ClientSpanID, ParentExecutionID: c.ParentExecutionID,
		TimerID: c.TimerID, FireAt: c.FireAt, Data: c.Data,
	}
	if c.OrchestrationStatus != "" {
		status, ok := history.ParseRuntimeStatus(c.OrchestrationStatus)
		if !ok {
			return nil, fmt.Errorf("unknown OrchestrationStatus %q", c.OrchestrationStatus)
		}
		e.OrchestrationStatus = int(status)
	}
	for _, column := range []struct {
		name, text string
		target     any
	}{
		{"OrchestrationInstance", c.OrchestrationInstance, &e.OrchestrationInstance},
		{"ParentInstance", c.ParentInstance, &e.ParentInstance},
		{"Tags", c.Tags, &e.Tags},
		{"ParentTraceContext", c.ParentTraceContext, &e.ParentTraceContext},
		{"FailureDetails", c.FailureDetails, &e.FailureDetails},
		{"State", c.State, &e.State},
	} {
		// Version 1 of DurableTask.AzureStorage left out what is null.
		if column.text == "" || column.text == jsonNull {
			continue
		}
		if err := json.Unmarshal([]byte(column.text), column.target); err != nil {
			return nil, fmt.Errorf("column %s: %w", column.name, err)
		}
	}
	return e.Decode(r.eventType)
}
