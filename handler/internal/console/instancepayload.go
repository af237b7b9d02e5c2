package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// maxShown is the largest number of bytes of a payload on a page.
const maxShown = 64 << 10

// A shownPayload is a payload in the form that pages show.
type shownPayload struct {
	Text string
	Size string // of the complete payload
	Cut  bool
	None bool
}

// showPayload returns the first bytes of a payload, indented if it is JSON.
func showPayload(text *string) shownPayload {
	if text == nil {
		return shownPayload{None: true}
	}
	p := shownPayload{Size: sizeOf(len(*text))}
	if json.Valid([]byte(*text)) {
		p.Text, p.Cut = indented(*text, maxShown)
	} else {
		p.Text, p.Cut = beginning(*text, maxShown)
	}
	return p
}

// indented formats the first bytes of JSON, up to about most, with one line per value. Unlike
// [json.Indent] it bounds the time and the output size for deeply nested JSON.
func indented(text string, most int) (_ string, isCut bool) {
	const deepest = 20 // the deepest level of indentation
	var out bytes.Buffer
	depth, quoted, opened := 0, false, false
	line := func() { out.WriteString("\n" + strings.Repeat("  ", min(depth, deepest))) }
	for i := range len(text) {
		c := text[i]
		switch {
		case out.Len() > most:
			shown, _ := beginning(out.String(), most)
			return shown, true
		case quoted:
			out.WriteByte(c)
			quoted = c != '"' || escaped(text[:i])
			continue
		case c == ' ', c == '\n', c == '\t', c == '\r':
			continue
		}
		closes := c == '}' || c == ']'
		if closes {
			depth--
		}
		if opened != closes { // the first element, or the end of a list that is not empty
			line()
		}
		opened = c == '{' || c == '['
		out.WriteByte(c)
		switch c {
		case '"':
			quoted = true
		case '{', '[':
			depth++
		case ',':
			line()
		case ':':
			out.WriteByte(' ')
		}
	}
	return beginning(out.String(), most)
}

// escaped reports whether text ends with an odd number of backslashes.
func escaped(text string) bool { return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1 }

// beginning returns the first bytes of text, at most most, without splitting a character.
func beginning(text string, most int) (_ string, isCut bool) {
	if len(text) <= most {
		return text, false
	}
	cut := most
	for cut > max(0, most-utf8.UTFMax) && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut], true
}

// sizeOf formats a number of bytes.
func sizeOf(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

// A historyRow is an event in the table of a history. Its payloads are loaded on demand.
type historyRow struct {
	Position int
	ID       int // number of the action that the event records, or -1
	Type     string
	At       time.Time
	Facts    []fact
	Payloads []payloadLink
}

// A fact is a field of an event that is not a payload.
type fact struct{ Name, Value string }

// A payloadLink links to a payload.
type payloadLink struct{ Name, Size, Query string }

// historyRowOf returns the row of an event. query returns the query of the payload in a field.
func historyRowOf(position int, e history.Event, query func(field string) string) historyRow {
	row := historyRow{Position: position, ID: e.Head().EventID, Type: e.Type().String(), At: e.Head().Timestamp}
	history.VisitFields(e, &rowVisitor{row: &row, query: query})
	return row
}

// payloadOf returns the payload in a field of an event, or nil if the event has no such payload.
func payloadOf(e history.Event, field string) *string {
	v := &rowVisitor{row: new(historyRow), query: func(string) string { return "" }, wanted: field}
	history.VisitFields(e, v)
	return v.found
}

// A rowVisitor collects the fields of an event.
type rowVisitor struct {
	row    *historyRow
	query  func(field string) string
	wanted string
	found  *string
}

// maxFactSize is the largest number of bytes of a text in the table.
const maxFactSize = 200

func (v *rowVisitor) fact(name, value string) {
	if value == "" {
		return
	}
	if short, isCut := beginning(value, maxFactSize); isCut {
		value = short + "…"
	}
	v.row.Facts = append(v.row.Facts, fact{name, visible(value)})
}

// Since implements [history.FieldVisitor]. So do the methods below.
func (v *rowVisitor) Since(_ byte, set bool) bool { return set }

// Bool ignores the field.
func (v *rowVisitor) Bool(string, *bool) {}

// Int adds the ID of the event that this event completes.
func (v *rowVisitor) Int(name string, n *int) { v.fact(name, strconv.Itoa(*n)) }

// OptionalInt adds a number that is set.
func (v *rowVisitor) OptionalInt(name string, n **int) {
	if *n != nil {
		v.fact(name, strconv.Itoa(**n))
	}
}

// String adds a text.
func (v *rowVisitor) String(name string, s *string) { v.fact(name, *s) }

// Text adds a link to a payload that is set.
func (v *rowVisitor) Text(name string, s **string) {
	if *s == nil || name == "Correlation" || name == "ClientSpanId" {
		return
	}
	if name == v.wanted {
		v.found = *s
	}
	v.row.Payloads = append(v.row.Payloads, payloadLink{name, sizeOf(len(**s)), v.query(name)})
}

// JSON adds a link to a payload.
func (v *rowVisitor) JSON(name string, s **string) { v.Text(name, s) }

// Time adds a time.
func (v *rowVisitor) Time(name string, t *time.Time) { v.OptionalTime(name, t) }

// OptionalTime adds a time that is set.
func (v *rowVisitor) OptionalTime(name string, t *time.Time) {
	if !t.IsZero() {
		v.fact(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// Tags adds all tags as one text.
func (v *rowVisitor) Tags(name string, tags *map[string]string) {
	if len(*tags) > 0 {
		q := url.Values{}
		for key, value := range *tags {
			q.Set(key, value)
		}
		text, _ := url.QueryUnescape(q.Encode()) // sorted by name
		v.fact(name, text)
	}
}

// Status adds the name of a status.
func (v *rowVisitor) Status(name string, s *history.RuntimeStatus) { v.fact(name, s.String()) }

// Instance adds the execution ID of a start.
func (v *rowVisitor) Instance(_ string, i *history.OrchestrationInstance) {
	v.fact("ExecutionId", i.ExecutionID)
}

// Parent adds the ID of the parent instance.
func (v *rowVisitor) Parent(name string, p **history.ParentInstance) {
	if *p != nil {
		v.fact(name, (*p).Instance.InstanceID)
	}
}

// Trace adds a trace context.
func (v *rowVisitor) Trace(name string, t **history.TraceContext) {
	if *t != nil {
		v.fact(name, (*t).TraceParent)
	}
}

// Failure adds a link to the text of a failure.
func (v *rowVisitor) Failure(name string, f **history.FailureDetails) {
	if *f != nil {
		text := failureText(*f)
		p := &text
		v.Text(name, &p)
	}
}

// failureText formats a failure with its stacks and causes.
func failureText(f *history.FailureDetails) string {
	var out strings.Builder
	for ; f != nil; f = f.InnerFailure {
		if out.Len() > 0 {
			out.WriteString("\ncaused by ")
		}
		out.WriteString(f.String() + "\n")
		if f.StackTrace != nil && *f.StackTrace != "" {
			out.WriteString(strings.TrimRight(*f.StackTrace, "\n") + "\n")
		}
		if f.IsNonRetriable {
			out.WriteString("not retriable\n")
		}
	}
	return out.String()
}
