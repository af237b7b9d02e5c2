package hubcli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// An event is one of a history, of which no two kinds have the same members.
type event struct {
	EventType           string
	Timestamp           string
	FunctionName        string
	Name                string
	Result              json.RawMessage
	Reason              json.RawMessage
	Input               json.RawMessage
	OrchestrationStatus string
	FireAt              string
}

// longest is how many characters of a payload a table shows.
const longest = 60

// print prints v as JSON, or text.
func (c *call) print(v any, text string) error {
	if c.flags.output == "json" {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return c.json(b)
	}
	_, err := fmt.Fprintln(c.program.Stdout, text)
	return err
}

// json prints JSON, indented.
func (c *call) json(text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	out.WriteByte('\n')
	_, err := c.program.Stdout.Write(out.Bytes())
	return err
}

// table prints rows with their cells below each other.
func (c *call) table(rows [][]string) error {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		say(w, "%s\n", strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(out.String()) {
		if _, err := fmt.Fprintln(c.program.Stdout, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// show prints one instance, which the answer told of.
func (c *call) show(a *answer, i instance) error {
	if c.flags.output == "json" {
		return c.json(a.body)
	}
	rows := [][]string{
		{"ID", i.InstanceID},
		{"Name", i.Name},
		{"Version", i.Version},
		{"Status", i.RuntimeStatus},
		{"Note", i.WaitsFor},
		{"Created", i.CreatedTime},
		{"Updated", i.LastUpdatedTime},
		{"Input", whole(i.Input)},
		{"Custom status", whole(i.CustomStatus)},
		{"Output", whole(i.Output)},
	}
	filled := rows[:0]
	for _, row := range rows {
		if row[1] != "" {
			filled = append(filled, row)
		}
	}
	if err := c.table(filled); err != nil || len(i.HistoryEvents) == 0 {
		return err
	}
	say(c.program.Stdout, "\n")
	return c.events(i.HistoryEvents)
}

// instances prints a list.
func (c *call) instances(all []json.RawMessage) error {
	if c.flags.output == "json" {
		if all == nil {
			all = []json.RawMessage{}
		}
		b, err := json.Marshal(all)
		if err != nil {
			return err
		}
		return c.json(b)
	}
	rows := [][]string{{"ID", "NAME", "STATUS", "CREATED", "UPDATED"}}
	for _, raw := range all {
		var i instance
		if err := json.Unmarshal(raw, &i); err != nil {
			return fmt.Errorf("%w: %w", errUnexpected, err)
		}
		rows = append(rows, []string{cell(i.InstanceID), cell(i.Name), i.RuntimeStatus, i.CreatedTime, i.LastUpdatedTime})
	}
	return c.table(rows)
}

// events prints a history.
func (c *call) events(all []event) error {
	rows := [][]string{{"TIME", "EVENT", "NAME", "DETAIL"}}
	for _, e := range all {
		name := e.FunctionName
		if name == "" {
			name = e.Name
		}
		detail := e.OrchestrationStatus
		for _, payload := range []json.RawMessage{e.Result, e.Reason, e.Input} {
			if text := whole(payload); text != "" {
				detail = strings.TrimSpace(detail + " " + text)
			}
		}
		if e.FireAt != "" && detail == "" {
			detail = "at " + e.FireAt
		}
		rows = append(rows, []string{e.Timestamp, e.EventType, cell(name), short(detail)})
	}
	return c.table(rows)
}

// whole returns a payload as one line, nothing for null.
func whole(payload json.RawMessage) string {
	if len(payload) == 0 || string(payload) == "null" {
		return ""
	}
	var out bytes.Buffer
	if err := json.Compact(&out, payload); err != nil {
		return cell(string(payload))
	}
	return cell(out.String())
}

// short returns the beginning of a text that is long.
func short(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest-1]) + "…"
}

// cell returns text without what would break a table, or act on a terminal.
func cell(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
