package wire

import (
	"bytes"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A RowScanner reads the rows that make up nearly all of a history, in the form
// in which the table service writes them: one flat object without white space.
// What it does not read, for whatever reason, [DecodeColumns] does, which decides
// what is an error. Both say the same of what the scanner reads.
//
// It remembers texts that come again in the next row, so that they are not
// copied each time, and makes rows by the dozen. The zero value is ready to use.
type RowScanner struct {
	executionID string
	name        string
	version     string
	rows        []HistoryRow // room for more
	scratch     []byte
	found       scannedRow // in the row that is being read
}

// rowsAtOnce is how many rows a [RowScanner] makes room for at a time.
const rowsAtOnce = 32

// A scanColumn is a column that a [RowScanner] looks at.
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
	scanUnused   // a column of the table itself
	scanEmpty    // JSON, of which only "null" and "" are read here
	scanColumns  // how many there are
	scanNowhere  = scanColumns
	scanTextKind = 1<<scanETag | 1<<scanRowKey | 1<<scanExecutionID | 1<<scanEventType | 1<<scanTimestamp | 1<<scanName |
		1<<scanVersion | 1<<scanInput | 1<<scanResult | 1<<scanFireAt | 1<<scanInstanceID | 1<<scanClientSpanID |
		1<<scanUnused | 1<<scanEmpty
)

// scanColumnOf returns which column has the name, scanNowhere for one that is
// not known here.
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
	return scanNowhere
}

// scannedRow holds the values that the scanner found in a row. Texts are without their
// quotes.
type scannedRow struct {
	seen    uint // a bit for each scanColumn
	escaped uint // a bit for each text with escapes that were not read yet
	texts   [scanUnused][]byte
	header  history.Header
	task    int
	timer   int
}

func (r *scannedRow) has(c scanColumn) bool { return r.seen&(1<<c) != 0 }

// Decode reads a row; ok is false if it must be read by [DecodeColumns].
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
		s.again(r, scanExecutionID, &s.executionID, &row.ExecutionID)
	if !ok || r.escaped != 0 {
		*row = HistoryRow{}
		return nil, false
	}
	s.rows = s.rows[1:]
	return row, true
}

// event returns the event of a row; ok is false for a type that is not read here, since it
// is rare or has JSON in it. A result or an input is part of the allocation of its event.
func (s *RowScanner) event(r *scannedRow) (ev history.Event, ok bool) {
	switch string(r.texts[scanEventType]) {
	case "OrchestratorStarted":
		return &history.OrchestratorStarted{Header: r.header}, true
	case "OrchestratorCompleted":
		return &history.OrchestratorCompleted{Header: r.header}, true
	case "TaskScheduled":
		e := &history.TaskScheduled{Header: r.header}
		return e, s.again(r, scanName, &s.name, &e.Name) && s.again(r, scanVersion, &s.version, &e.Version) &&
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
		return e, s.again(r, scanName, &s.name, &e.Name) && s.again(r, scanVersion, &s.version, &e.Version) &&
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
		return e, s.again(r, scanName, &s.name, &e.Name) && s.optional(r, scanInput, &e.Input) && s.text(r, scanInstanceID, &e.InstanceID)
	case "EventRaised":
		e := &history.EventRaised{Header: r.header}
		return e, s.again(r, scanName, &s.name, &e.Name) && s.optional(r, scanInput, &e.Input)
	}
	return nil, false
}

// text sets *to to the text of a column, if it is there.
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

// again is text for what is often the same as in the row before, *last.
func (s *RowScanner) again(r *scannedRow, c scanColumn, last, to *string) bool {
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

// optional sets *to to the text of a column, and leaves it nil if there is none.
func (s *RowScanner) optional(r *scannedRow, c scanColumn, to **string) bool {
	if !r.has(c) {
		return true
	}
	*to = new(string)
	return s.text(r, c, *to)
}

// fireAt sets *at to the time at which a timer is due, if it is there.
func (r *scannedRow) fireAt(at *time.Time) (ok bool) {
	if !r.has(scanFireAt) {
		return true
	}
	*at, ok = scanTime(r.texts[scanFireAt])
	return ok
}

// scan finds the columns of a row. It returns false for anything that it does
// not understand.
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
		if column == scanNowhere || column < scanUnused && r.has(column) {
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

// value takes the value of a column that begins at i. It returns where it ends,
// or -1.
func (r *scannedRow) value(column scanColumn, raw []byte, i int) int {
	if i < len(raw) && raw[i] == 'n' {
		if !bytes.HasPrefix(raw[i:], []byte("null")) {
			return -1
		}
		return i + len("null") // as if it were not there
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
			return -1 // the standard library says whether it may be so
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
	default: // there is no other number
		return scanBool(raw, i, &r.header.IsPlayed)
	}
}
