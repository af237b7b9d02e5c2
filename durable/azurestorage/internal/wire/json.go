package wire

import (
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// A jsonWriter writes JSON objects with the same bytes as DurableTask's Newtonsoft.Json. The standard
// library escapes other characters.
type jsonWriter struct {
	buf []byte
	// types means that objects start with $type, as in messages. Objects in table columns do not.
	types bool
	// eventType is the type of the current event until it is written.
	eventType history.EventType
}

// open starts an object of the given .NET type. An empty typeName is not written.
func (w *jsonWriter) open(typeName string) {
	w.buf = append(w.buf, '{')
	if w.types && typeName != "" {
		w.str("$type", typeName)
	}
}

// close ends an object.
func (w *jsonWriter) close() { w.buf = append(w.buf, '}') }

// key starts a member. Names are constants and need no escaping.
func (w *jsonWriter) key(name string) {
	if w.buf[len(w.buf)-1] != '{' {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(w.buf, '"')
	w.buf = append(w.buf, name...)
	w.buf = append(w.buf, '"', ':')
}

func (w *jsonWriter) str(name, v string) {
	w.key(name)
	w.buf = appendJSONString(w.buf, v)
}

func (w *jsonWriter) optStr(name string, v *string) {
	if v == nil {
		w.null(name)
		return
	}
	w.str(name, *v)
}

// strOrNull writes a string, and null for the empty string.
func (w *jsonWriter) strOrNull(name, v string) {
	if v == "" {
		w.null(name)
		return
	}
	w.str(name, v)
}

func (w *jsonWriter) null(name string) {
	w.key(name)
	w.buf = append(w.buf, "null"...)
}

func (w *jsonWriter) int(name string, v int64) {
	w.key(name)
	w.buf = strconv.AppendInt(w.buf, v, 10)
}

func (w *jsonWriter) bool(name string, v bool) {
	w.key(name)
	w.buf = strconv.AppendBool(w.buf, v)
}

func (w *jsonWriter) time(name string, t time.Time) {
	w.key(name)
	w.buf = append(w.buf, '"')
	w.buf = appendTime(w.buf, t)
	w.buf = append(w.buf, '"')
}

// raw writes a member whose value is JSON text.
func (w *jsonWriter) raw(name, text string) {
	w.key(name)
	w.buf = append(w.buf, text...)
}

// appendTime appends t in the format of Newtonsoft.Json for a DateTime.
func appendTime(b []byte, t time.Time) []byte { return eventjson.AppendTime(b, t) }

// appendJSONString appends s in quotes and escaped, as Newtonsoft.Json does.
func appendJSONString(b []byte, s string) []byte { return eventjson.AppendString(b, s) }

// JSONLength returns the maximum size of text in JSON, in bytes.
func JSONLength(text string) (n int) {
	for _, r := range text {
		n += jsonRuneLength(r)
	}
	return n
}

func jsonRuneLength(r rune) int {
	switch {
	case r < ' ' || r == 0x7F || r == '\u2028' || r == '\u2029' || r == '\uFFFD' || r == '<' || r == '>' || r == '&':
		return len(`\u0000`)
	case r == '"' || r == '\\':
		return 2
	case r < 0x80:
		return 1
	}
	return len(string(r))
}

// TruncateJSON returns the longest prefix of text whose size in JSON is at most limit bytes.
func TruncateJSON(text string, limit int) string {
	n := 0
	for i, r := range text {
		if n += jsonRuneLength(r); n > limit {
			return text[:i]
		}
	}
	return text
}
