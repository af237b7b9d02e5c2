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

// mostShown is how many bytes of a payload a page shows.
const mostShown = 64 << 10

// A shownPayload is a payload as a page shows it.
type shownPayload struct {
	Text string
	Size string // of the whole
	Cut  bool
	None bool
}

// showPayload returns the beginning of a payload, indented if it is JSON.
func showPayload(text *string) shownPayload {
	if text == nil {
		return shownPayload{None: true}
	}
	p := shownPayload{Size: sizeOf(len(*text))}
	if json.Valid([]byte(*text)) {
		p.Text, p.Cut = indented(*text, mostShown)
	} else {
		p.Text, p.Cut = beginning(*text, mostShown)
	}
	return p
}

// indented returns the first bytes of JSON, about so many, with a line for each value. Its
// time and size are bounded whatever is nested in it, unlike those of [json.Indent].
func indented(text string, most int) (_ string, isCut bool) {
	const deepest = 20 // levels that are indented
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
		if opened != closes { // the first of a list, or the end of one that is not empty
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

// escaped reports whether a text ends with an odd number of backslashes.
func escaped(text string) bool { return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1 }

// beginning returns the first bytes of a text, at most so many, without half a character.
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

// sizeOf returns a number of bytes in words.
func sizeOf(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

// A historyRow is an event as the table shows it: its payloads are loaded when they are opened.
type historyRow struct {
	Position int
	ID       int // of the action, -1 if it is none
	Type     string
	At       time.Time
	Facts    []fact
	Payloads []payloadLink
}

// A fact is a field of an event that is no payload.
type fact struct{ Name, Value string }

// A payloadLink leads to a payload.
type payloadLink struct{ Name, Size, Query string }

// historyRowOf returns the row of an event; query returns what asks for one of its fields.
func historyRowOf(position int, e history.Event, query func(field string) string) historyRow {
	row := historyRow{Position: position, ID: e.Head().EventID, Type: e.Type().String(), At: e.Head().Timestamp}
	history.VisitFields(e, &rowVisitor{row: &row, query: query})
	return row
}

// payloadOf returns a field of an event by its name, nil if there is none.
func payloadOf(e history.Event, field string) *string {
	v := &rowVisitor{row: new(historyRow), query: func(string) string { return "" }, wanted: field}
	history.VisitFields(e, v)
	return v.found
}

// A rowVisitor collects the fields of an event that are set.
type rowVisitor struct {
	row    *historyRow
	query  func(field string) string
	wanted string
	found  *string
}

// longestFact is how many bytes of a text stand in the table itself.
const longestFact = 200

func (v *rowVisitor) fact(name, value string) {
	if value == "" {
		return
	}
	if short, isCut := beginning(value, longestFact); isCut {
		value = short + "…"
	}
	v.row.Facts = append(v.row.Facts, fact{name, visible(value)})
}

// Since implements [history.FieldVisitor], as do the methods after it.
func (v *rowVisitor) Since(_ byte, set bool) bool { return set }

// Bool adds nothing.
func (v *rowVisitor) Bool(string, *bool) {}

// Int adds the number of what an event completes.
func (v *rowVisitor) Int(name string, n *int) { v.fact(name, strconv.Itoa(*n)) }

// OptionalInt adds a number, if there is one.
func (v *rowVisitor) OptionalInt(name string, n **int) {
	if *n != nil {
		v.fact(name, strconv.Itoa(**n))
	}
}

// String adds a text.
func (v *rowVisitor) String(name string, s *string) { v.fact(name, *s) }

// Text adds a link to a payload, if there is one.
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

// OptionalTime adds a time, if there is one.
func (v *rowVisitor) OptionalTime(name string, t *time.Time) {
	if !t.IsZero() {
		v.fact(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// Tags adds tags as one text.
func (v *rowVisitor) Tags(name string, tags *map[string]string) {
	if len(*tags) > 0 {
		q := url.Values{}
		for key, value := range *tags {
			q.Set(key, value)
		}
		text, _ := url.QueryUnescape(q.Encode()) // in order
		v.fact(name, text)
	}
}

// Status adds a status by its name.
func (v *rowVisitor) Status(name string, s *history.RuntimeStatus) { v.fact(name, s.String()) }

// Instance adds the execution of a start.
func (v *rowVisitor) Instance(_ string, i *history.OrchestrationInstance) {
	v.fact("ExecutionId", i.ExecutionID)
}

// Parent adds who waits for a child.
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

// Failure adds a failure as text.
func (v *rowVisitor) Failure(name string, f **history.FailureDetails) {
	if *f != nil {
		text := failureText(*f)
		p := &text
		v.Text(name, &p)
	}
}

// failureText returns a failure with its stacks and causes.
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
			out.WriteString("not to be retried\n")
		}
	}
	return out.String()
}
