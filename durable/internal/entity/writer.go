package entity

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// A writer writes JSON in the format of Newtonsoft.Json.
type writer struct{ buf []byte }

func (w *writer) open()  { w.buf = append(w.buf, '{') }
func (w *writer) close() { w.buf = append(w.buf, '}') }

// key starts a member.
func (w *writer) key(name string) {
	if w.buf[len(w.buf)-1] != '{' {
		w.buf = append(w.buf, ',')
	}
	w.buf = eventjson.AppendString(w.buf, name)
	w.buf = append(w.buf, ':')
}

func (w *writer) str(name, v string) {
	w.key(name)
	w.buf = eventjson.AppendString(w.buf, v)
}

// optional writes a member unless v is nil.
func (w *writer) optional(name string, v *string) {
	if v != nil {
		w.str(name, *v)
	}
}

// nullable writes a member, with null for nil.
func (w *writer) nullable(name string, v *string) {
	if v == nil {
		w.raw(name, "null")
		return
	}
	w.str(name, *v)
}

// filled writes a member unless v is empty.
func (w *writer) filled(name, v string) {
	if v != "" {
		w.str(name, v)
	}
}

func (w *writer) bool(name string, v bool) { w.raw(name, strconv.FormatBool(v)) }

func (w *writer) int(name string, v int) { w.raw(name, strconv.Itoa(v)) }

func (w *writer) time(name string, t time.Time) {
	w.key(name)
	w.buf = appendStamp(w.buf, t)
}

// raw writes a member whose value is JSON text.
func (w *writer) raw(name, text string) {
	w.key(name)
	w.buf = append(w.buf, text...)
}

// list writes an array of n elements.
func (w *writer) list(name string, n int, element func(i int)) {
	w.key(name)
	w.buf = append(w.buf, '[')
	for i := range n {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		element(i)
	}
	w.buf = append(w.buf, ']')
}

// failure writes failure details as a value (DurableTask.Core/FailureDetails.cs).
func (w *writer) failure(f *history.FailureDetails) {
	if f == nil {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.open()
	w.str("ErrorType", f.ErrorType)
	w.str("ErrorMessage", f.ErrorMessage)
	w.nullable("StackTrace", f.StackTrace)
	w.key("InnerFailure")
	w.failure(f.InnerFailure)
	w.bool("IsNonRetriable", f.IsNonRetriable)
	if f.Properties == nil {
		w.raw("Properties", "null")
	} else {
		w.key("Properties")
		w.open()
		for _, k := range slices.Sorted(maps.Keys(f.Properties)) {
			if v := f.Properties[k]; json.Valid([]byte(v)) {
				w.raw(k, v)
			} else {
				w.str(k, v)
			}
		}
		w.close()
	}
	w.close()
}

// marks writes a member unless m is empty.
func (w *writer) marks(name string, m marks) {
	if len(m) == 0 {
		return
	}
	raw := make([]byte, 0, markBytes*len(m))
	for _, k := range m {
		for shift := 8 * (markBytes - 1); shift >= 0; shift -= 8 {
			raw = append(raw, byte(k>>shift))
		}
	}
	w.str(name, base64.RawURLEncoding.EncodeToString(raw))
}

// messages writes a member unless all is empty.
func (w *writer) messages(name string, all []Message) {
	if len(all) > 0 {
		w.list(name, len(all), func(i int) { writeMessage(w, all[i]) })
	}
}
