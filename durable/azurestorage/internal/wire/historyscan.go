package wire

import (
	"bytes"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A RowScanner decodes the most frequent history rows quickly. It expects the table service's format:
// one flat object without white space. All other rows are decoded by [DecodeColumns], which also
// decides about errors. Both decoders return the same result for rows that the scanner accepts.
//
// The scanner reuses strings that repeat from row to row, and allocates rows in groups. The zero value
// is ready to use.
type RowScanner struct {
	executionID string
	name        string
	version     string
	rows        []HistoryRow // allocated rows that are not used yet
	scratch     []byte
	found       scannedRow // values of the current row
}

// rowsAtOnce is the number of rows that a [RowScanner] allocates at a time.
const rowsAtOnce = 32

// A scanColumn is a column that a [RowScanner] knows.
type scanColumn uint

const (
	scanETag scanColumn = iota
	scanRowKey
	scanExecutionID
	scanEventType
	scanEventID
	scanIsPlayed
	scanTimestamp
	scanName
	scanVersion
	scanInput
	scanResult
	scanTaskScheduledID
	scanTimerID
	scanFireAt
	scanInstanceID
	scanClientSpanID
	scanUnused   // a column of the table service
	scanEmpty    // JSON; the scanner accepts only "null" and ""
	scanColumns  // number of columns
	scanUnknown  = scanColumns
	scanTextKind = 1<<scanETag | 1<<scanRowKey | 1<<scanExecutionID | 1<<scanEventType | 1<<scanTimestamp | 1<<scanName |
		1<<scanVersion | 1<<scanInput | 1<<scanResult | 1<<scanFireAt | 1<<scanInstanceID | 1<<scanClientSpanID |
		1<<scanUnused | 1<<scanEmpty
)

// scanColumnOf returns the column with the given name, scanUnknown for an unknown name.
func scanColumnOf(name []byte) scanColumn {
	switch string(name) {
	case "odata.etag":
		return scanETag
	case "RowKey":
		return scanRowKey
	case "ExecutionId":
		return scanExecutionID
	case "EventType":
		return scanEventType
	case "EventId":
		return scanEventID
	case "IsPlayed":
		return scanIsPlayed
	case "_Timestamp":
		return scanTimestamp
	case "Name":
		return scanName
	case "Version":
		return scanVersion
	case "Input":
		return scanInput
	case "Result":
		return scanResult
	case "TaskScheduledId":
		return scanTaskScheduledID
	case "TimerId":
		return scanTimerID
	case "FireAt":
		return scanFireAt
	case "InstanceId":
		return scanInstanceID
	case "ClientSpanId":
		return scanClientSpanID
	case "PartitionKey", "Timestamp", "_Timestamp@odata.type", "FireAt@odata.type", "Timestamp@odata.type":
		return scanUnused
	case "Tags", "ParentTraceContext", "FailureDetails":
		return scanEmpty
	}
	return scanUnknown
}

// scannedRow contains the values of a row. Strings are without their quotes.
type scannedRow struct {
	seen    uint // bit set of scanColumns
	escaped uint // bit set of strings with escapes that are not decoded yet
	texts   [scanUnused][]byte
	header  history.Header
	task    int
	timer   int
}

func (r *scannedRow) has(c scanColumn) bool { return r.seen&(1<<c) != 0 }

// Decode decodes a row. If ok is false, the row must be decoded by [DecodeColumns].
func (s *RowScanner) Decode(raw []byte) (row *HistoryRow, ok bool) {
	r := &s.found
	r.seen, r.escaped, r.header, r.task, r.timer = 0, 0, history.Header{}, 0, 0
	if !isPlainJSON(raw) || !r.scan(raw) || !r.has(scanRowKey) || !r.has(scanEventType) {
		return nil, false
	}
	if r.has(scanTimestamp) {
		if r.header.Timestamp, ok = scanTime(r.texts[scanTimestamp]); !ok {
			return nil, false
		}
	}
	ev, ok := s.event(r)
	if !ok {
		return nil, false
	}
	if len(s.rows) == 0 {
		s.rows = make([]HistoryRow, rowsAtOnce)
	}
	row = &s.rows[0]
	row.EventType, row.scanned = ev.Type(), ev
	if r.has(scanETag) {
		row.quotedETag = r.texts[scanETag]
		if hasQuotesOnly(row.quotedETag) {
			r.escaped &^= 1 << scanETag
		}
	}
	ok = s.text(r, scanRowKey, &row.RowKey) && row.RowKey != SentinelRowKey &&
		s.cachedText(r, scanExecutionID, &s.executionID, &row.ExecutionID)
	if !ok || r.escaped != 0 {
		*row = HistoryRow{}
		return nil, false
	}
	s.rows = s.rows[1:]
	return row, true
}

// event returns the event of a row. ok is false for types that the scanner does not decode, because
// they are rare or contain JSON. A result is part of the allocation of its event.
func (s *RowScanner) event(r *scannedRow) (ev history.Event, ok bool) {
	switch string(r.texts[scanEventType]) {
	case "OrchestratorStarted":
		return &history.OrchestratorStarted{Header: r.header}, true
	case "OrchestratorCompleted":
		return &history.OrchestratorCompleted{Header: r.header}, true
	case "TaskScheduled":
		e := &history.TaskScheduled{Header: r.header}
		return e, s.cachedText(r, scanName, &s.name, &e.Name) && s.cachedText(r, scanVersion, &s.version, &e.Version) &&
			s.optional(r, scanInput, &e.Input)
	case "TaskCompleted":
		e := &struct {
			history.TaskCompleted
			result string
		}{TaskCompleted: history.TaskCompleted{Header: r.header, TaskScheduledID: r.task}}
		if r.has(scanResult) {
			e.Result = &e.result
		}
		return &e.TaskCompleted, s.text(r, scanResult, &e.result)
	case "SubOrchestrationInstanceCreated":
		e := &history.SubOrchestrationInstanceCreated{Header: r.header}
		return e, s.cachedText(r, scanName, &s.name, &e.Name) && s.cachedText(r, scanVersion, &s.version, &e.Version) &&
			s.optional(r, scanInput, &e.Input) && s.optional(r, scanClientSpanID, &e.ClientSpanID) && s.text(r, scanInstanceID, &e.InstanceID)
	case "SubOrchestrationInstanceCompleted":
		e := &struct {
			history.SubOrchestrationInstanceCompleted
			result string
		}{SubOrchestrationInstanceCompleted: history.SubOrchestrationInstanceCompleted{Header: r.header, TaskScheduledID: r.task}}
		if r.has(scanResult) {
			e.Result = &e.result
		}
		return &e.SubOrchestrationInstanceCompleted, s.text(r, scanResult, &e.result)
	case "TimerCreated":
		e := &history.TimerCreated{Header: r.header}
		return e, r.fireAt(&e.FireAt)
	case "TimerFired":
		e := &history.TimerFired{Header: r.header, TimerID: r.timer}
		return e, r.fireAt(&e.FireAt)
	case "EventSent":
		e := &history.EventSent{Header: r.header}
		return e, s.cachedText(r, scanName, &s.name, &e.Name) && s.optional(r, scanInput, &e.Input) && s.text(r, scanInstanceID, &e.InstanceID)
	case "EventRaised":
		e := &history.EventRaised{Header: r.header}
		return e, s.cachedText(r, scanName, &s.name, &e.Name) && s.optional(r, scanInput, &e.Input)
	}
	return nil, false
}

// text sets *to to the string in a column if the row has the column.
func (s *RowScanner) text(r *scannedRow, c scanColumn, to *string) bool {
	if !r.has(c) {
		return true
	}
	if r.escaped&(1<<c) == 0 {
		*to = string(r.texts[c])
		return true
	}
	r.escaped &^= 1 << c
	var ok bool
	s.scratch, ok = unquoteJSON(s.scratch[:0], r.texts[c])
	*to = string(s.scratch)
	return ok
}

// cachedText is text for a column that often has the same value as in the previous row, *last.
func (s *RowScanner) cachedText(r *scannedRow, c scanColumn, last, to *string) bool {
	if !r.has(c) {
		return true
	}
	if r.escaped&(1<<c) == 0 && string(r.texts[c]) == *last {
		*to = *last
		return true
	}
	if !s.text(r, c, to) {
		return false
	}
	*last = *to
	return true
}

// optional sets *to to the string in a column. It leaves *to nil if the row does not have the column.
func (s *RowScanner) optional(r *scannedRow, c scanColumn, to **string) bool {
	if !r.has(c) {
		return true
	}
	*to = new(string)
	return s.text(r, c, *to)
}

// fireAt sets *at to the due time of a timer if the row has it.
func (r *scannedRow) fireAt(at *time.Time) (ok bool) {
	if !r.has(scanFireAt) {
		return true
	}
	*at, ok = scanTime(r.texts[scanFireAt])
	return ok
}

// scan finds the columns of a row. It returns false for a format that it does not know.
func (r *scannedRow) scan(raw []byte) bool {
	if len(raw) < 2 || raw[0] != '{' {
		return false
	}
	for i := 1; ; {
		name, next := scanText(raw, i)
		if next < 0 || next >= len(raw) || raw[next] != ':' {
			return false
		}
		column := scanColumnOf(name)
		if column == scanUnknown || column < scanUnused && r.has(column) {
			return false
		}
		if next = r.value(column, raw, next+1); next < 0 || next >= len(raw) {
			return false
		}
		switch raw[next] {
		case ',':
			i = next + 1
		case '}':
			return next+1 == len(raw)
		default:
			return false
		}
	}
}

// value reads the value of a column at offset i. It returns the offset after the value, or -1.
func (r *scannedRow) value(column scanColumn, raw []byte, i int) int {
	if i < len(raw) && raw[i] == 'n' {
		if !bytes.HasPrefix(raw[i:], []byte("null")) {
			return -1
		}
		return i + len("null") // null counts as absent
	}
	if scanTextKind&(1<<column) != 0 {
		text, next := scanText(raw, i)
		escaped := bytes.IndexByte(text, '\\') >= 0
		switch {
		case column < scanUnused:
			r.texts[column] = text
			r.seen |= 1 << column
			if escaped {
				r.escaped |= 1 << column
			}
		case escaped:
			return -1 // encoding/json decides whether it is valid
		case column == scanEmpty && len(text) > 0 && string(text) != JSONNull:
			return -1
		}
		return next
	}
	r.seen |= 1 << column
	switch column {
	case scanEventID:
		return scanInt(raw, i, &r.header.EventID)
	case scanTaskScheduledID:
		return scanInt(raw, i, &r.task)
	case scanTimerID:
		return scanInt(raw, i, &r.timer)
	default: // the remaining column is IsPlayed
		return scanBool(raw, i, &r.header.IsPlayed)
	}
}
