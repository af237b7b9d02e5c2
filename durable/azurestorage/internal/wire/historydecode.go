package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// A HistoryRow is a row of the history table as it was read: an event, or the
// sentinel.
type HistoryRow struct {
	RowKey      string
	ExecutionID string
	knownETag   string
	quotedETag  []byte // in JSON, in the place of ETag
	Size        int    // of the row as it was read, roughly in bytes

	EventType history.EventType // of no meaning in the sentinel
	scanned   history.Event     // what a [RowScanner] read
	Columns   *historyColumns   // nil if a [RowScanner] read the row
}

// A ColumnBlob says that the value of a column is in a blob.
type ColumnBlob struct {
	Column string
	Blob   string // the blob's name
}

// historyColumns are the columns of all types of events, by name, and of the sentinel.
// Columns that are not listed are ignored.
type historyColumns struct {
	ETag        string `json:"odata.etag"`
	RowKey      string
	ExecutionID string `json:"ExecutionId"`
	EventType   string
	EventTime   eventjson.Time `json:"_Timestamp"`

	// Members whose values are as they are in a message.
	eventjson.Event
	// Members whose values are JSON text in a column.
	OrchestrationInstance string
	ParentInstance        string
	Tags                  string
	ParentTraceContext    string
	FailureDetails        string
	State                 string
	// OrchestrationStatus is a name in a column.
	OrchestrationStatus string

	// Columns of the sentinel.
	Tracking                     string
	FirstExecutionID             string `json:"FirstExecutionId"`
	EntityBatches                string
	IsCheckpointComplete         bool
	CheckpointCompletedTimestamp eventjson.Time

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

// DecodeHistoryRow reads a row as the table service returns it. A row of a type
// that it does not know is an error: leaving it out would change what the
// orchestrator sees.
func DecodeHistoryRow(raw []byte) (*HistoryRow, error) {
	s := RowScanner{rows: make([]HistoryRow, 1)}
	return s.Row(raw)
}

// Row is [DecodeHistoryRow] for one of many rows.
func (s *RowScanner) Row(raw []byte) (*HistoryRow, error) {
	if row, ok := s.Decode(raw); ok {
		return row, nil
	}
	return DecodeColumns(raw)
}

// DecodeColumns reads any row.
func DecodeColumns(raw []byte) (*HistoryRow, error) {
	r := &HistoryRow{Columns: new(historyColumns)}
	if err := json.Unmarshal(raw, r.Columns); err != nil {
		return nil, fmt.Errorf("decode history row: %w", err)
	}
	r.RowKey, r.ExecutionID, r.knownETag = r.Columns.RowKey, r.Columns.ExecutionID, r.Columns.ETag
	if r.IsSentinel() {
		return r, nil
	}
	var ok bool
	if r.EventType, ok = history.ParseEventType(r.Columns.EventType); !ok {
		return nil, fmt.Errorf("decode history row %q: unknown EventType %q", r.RowKey, r.Columns.EventType)
	}
	return r, nil
}

// SameEvent reports whether two rows have the same event, as far as its type, its
// number and its time tell.
func (r *HistoryRow) SameEvent(other *HistoryRow) bool {
	id, at := r.head()
	otherID, otherAt := other.head()
	return r.EventType == other.EventType && id == otherID && at.Equal(otherAt)
}

func (r *HistoryRow) head() (id int, at time.Time) {
	if r.scanned != nil {
		return r.scanned.Head().EventID, r.scanned.Head().Timestamp
	}
	return r.Columns.EventID, r.Columns.EventTime.Time
}

// ETag returns the row's ETag, which few have a use for.
func (r *HistoryRow) ETag() string {
	if r.quotedETag != nil {
		text, _ := unquoteJSON(nil, r.quotedETag)
		return string(text)
	}
	return r.knownETag
}

// IsSentinel reports whether the row is the sentinel, which has no event.
func (r *HistoryRow) IsSentinel() bool { return r.RowKey == SentinelRowKey }

// Blobs returns the columns whose values are in blobs and were not yet given to
// resolve.
func (r *HistoryRow) Blobs() []ColumnBlob {
	if r.Columns == nil {
		return nil
	}
	var blobs []ColumnBlob
	for _, column := range LargeTextColumns {
		if blob := r.Columns.blobName(column); *blob != "" {
			blobs = append(blobs, ColumnBlob{Column: column, Blob: *blob})
		}
	}
	return blobs
}

// Resolve gives a column that blobs returned its value.
func (r *HistoryRow) Resolve(column, text string) {
	c := r.Columns
	*c.blobName(column) = ""
	switch column {
	case "FailureDetails":
		c.FailureDetails = text
	case "Tags":
		c.Tags = text
	default:
		switch m := c.Member(column).(type) {
		case *string:
			*m = text
		case **string:
			*m = &text
		}
	}
}

// blobName returns the column that names the blob of another column, which is
// one of [LargeTextColumns].
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

// Event returns the event of a row that is not the sentinel and whose blobs are
// all resolved.
func (r *HistoryRow) Event() (history.Event, error) {
	if r.scanned != nil {
		return r.scanned, nil
	}
	ev, err := r.decodeEvent()
	if err != nil {
		return nil, fmt.Errorf("decode history row %q, %s: %w", r.RowKey, r.EventType, err)
	}
	return ev, nil
}

func (r *HistoryRow) decodeEvent() (history.Event, error) {
	if blobs := r.Blobs(); len(blobs) > 0 {
		return nil, fmt.Errorf("the value of %s is in blob %q, which was not read", blobs[0].Column, blobs[0].Blob)
	}
	c := r.Columns
	e := &c.Event
	e.Timestamp = c.EventTime
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
		if column.text == "" || column.text == JSONNull {
			continue
		}
		if err := json.Unmarshal([]byte(column.text), column.target); err != nil {
			return nil, fmt.Errorf("column %s: %w", column.name, err)
		}
	}
	return e.Decode(r.EventType)
}
