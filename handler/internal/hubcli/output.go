package hubcli

import (
	"bytes"
	"encoding/json"
	"strings"
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
