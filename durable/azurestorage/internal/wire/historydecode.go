package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// A HistoryRow is a decoded row of the history table: an event or the sentinel.
type HistoryRow struct {
	RowKey      string
	ExecutionID string
	knownETag   string
	quotedETag  []byte // as JSON; replaces knownETag if set
	Size        int    // approximate size in bytes

	EventType history.EventType // meaningless for the sentinel
	scanned   history.Event     // set if a [RowScanner] has decoded the row
	Columns   *historyColumns   // nil if a [RowScanner] has decoded the row
}

// A ColumnBlob is a column whose value is stored in a blob.
type ColumnBlob struct {
	Column string
	Blob   string // name of the blob
}

// historyColumns are the columns of all event types and of the sentinel. Other columns are ignored.
type historyColumns struct {
	ETag        string `json:"odata.etag"`
	RowKey      string
	ExecutionID string `json:"ExecutionId"`
	EventType   string
	EventTime   eventjson.Time `json:"_Timestamp"`

	// Members with the same form as in messages.
	eventjson.Event
	// Members that are JSON text in a column.
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

// DecodeHistoryRow decodes a row in the table service's format. It fails for unknown event types:
// ignoring an event would change the replay.
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

// DecodeColumns decodes a row with encoding/json.
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

// SameEvent reports whether two rows have the same event, judged by its type, EventID and time.
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

// ETag returns the ETag of the row. It decodes the ETag on demand, because most rows' ETags are not
// used.
func (r *HistoryRow) ETag() string {
	if r.quotedETag != nil {
		text, _ := unquoteJSON(nil, r.quotedETag)
		return string(text)
	}
	return r.knownETag
}

// IsSentinel reports whether the row is the sentinel, which contains no event.
func (r *HistoryRow) IsSentinel() bool { return r.RowKey == SentinelRowKey }

// Blobs returns the columns whose values are in blobs and have not been passed to
// [HistoryRow.Resolve].
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

// Resolve sets the value of a column that Blobs has returned.
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

// blobName returns the column with the name of another column's blob. column is one of
// [LargeTextColumns].
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
	panic("azurestorage: values of column " + column + " are never in blobs")
}

// Event returns the event of a row. The row must not be the sentinel, and all its blobs must be
// resolved.
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
		// Version 1 of DurableTask.AzureStorage omits null columns.
		if column.text == "" || column.text == JSONNull {
			continue
		}
		if err := json.Unmarshal([]byte(column.text), column.target); err != nil {
			return nil, fmt.Errorf("column %s: %w", column.name, err)
		}
	}
	return e.Decode(r.EventType)
}
