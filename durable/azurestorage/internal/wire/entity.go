package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Row is a table row in the form in which it is sent to the service. Null columns are omitted: the
// service drops them, and a merge keeps the stored value in both cases.
//
// Row encodes its own JSON because the SDK's encoder doubles apostrophes in keys. It would store an
// instance under a key that .NET never reads.
type Row struct {
	PartitionKey string
	RowKey       string

	Properties []property
}

// A property is the value of a column, with its EDM type.
type property struct {
	Name string
	Edm  edmType
	Text string // for String and DateTime, as sent
	num  int32  // for Int32 and Boolean (1 means true)
}

type edmType int

// The EDM types of DurableTask's columns.
const (
	EDMString edmType = iota
	EDMInt32
	EDMBoolean
	EDMDateTime
)

// LargeTextColumns are the columns whose values are stored in blobs when they are too large. They are
// also the columns that count in the size estimate
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, VariableSizeEntityProperties).
var LargeTextColumns = [...]string{
	"Name", "Input", "Result", "Output", "Reason", "Details", "Correlation", "FailureDetails", "Tags",
}

// MaxColumnUnits is the maximum size of a column of [LargeTextColumns], in UTF-16 code units: 60 KiB
// (AzureTableTrackingStore.cs, MaxTablePropertySizeInBytes).
const MaxColumnUnits = 60 * 1024 / 2

// BlobNameSuffix is the suffix of the column that contains the name of another column's blob.
const BlobNameSuffix = "BlobName"

func (e *Row) set(p property) {
	for i := range e.Properties {
		if e.Properties[i].Name == p.Name {
			e.Properties[i] = p
			return
		}
	}
	e.Properties = append(e.Properties, p)
}

func (e *Row) remove(name string) {
	for i := range e.Properties {
		if e.Properties[i].Name == name {
			e.Properties = append(e.Properties[:i], e.Properties[i+1:]...)
			return
		}
	}
}

// SetString sets a String column.
func (e *Row) SetString(name, v string) { e.set(property{Name: name, Edm: EDMString, Text: v}) }

// setOptional sets a String column, or removes it if v is nil.
func (e *Row) setOptional(name string, v *string) {
	if v == nil {
		e.remove(name)
		return
	}
	e.SetString(name, *v)
}

// SetInt sets an Int32 column. It limits v to 32 bits, which no number of DurableTask exceeds.
func (e *Row) SetInt(name string, v int) {
	n := int32(max(math.MinInt32, min(math.MaxInt32, v)))
	e.set(property{Name: name, Edm: EDMInt32, num: n})
}

func (e *Row) setBool(name string, v bool) {
	p := property{Name: name, Edm: EDMBoolean}
	if v {
		p.num = 1
	}
	e.set(p)
}

// SetTime sets a DateTime column.
func (e *Row) SetTime(name string, t time.Time) {
	e.set(property{Name: name, Edm: EDMDateTime, Text: formatEDMTime(t)})
}

// SetOptionalTime sets a DateTime column, or removes it if t is zero.
func (e *Row) SetOptionalTime(name string, t time.Time) {
	if t.IsZero() {
		e.remove(name)
		return
	}
	e.SetTime(name, t)
}

// minEDMTime is the earliest time that a table can store.
var minEDMTime = time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC)

// formatEDMTime formats a DateTime with seven decimals, as Azure.Data.Tables does. It replaces times
// that a table cannot store, such as the zero time of a message without one, by the earliest possible
// time. Otherwise the service would reject the row, and the instance could not continue.
func formatEDMTime(t time.Time) string {
	t = t.UTC()
	if t.Before(minEDMTime) {
		t = minEDMTime
	}
	return t.Format("2006-01-02T15:04:05.0000000Z")
}

// Text returns the value of a String column, empty if the row does not have it.
func (e *Row) Text(name string) string {
	v, _ := e.LookUp(name)
	return v
}

// LookUp returns the value of a String column, and whether the row has it.
func (e *Row) LookUp(name string) (v string, ok bool) {
	for i := range e.Properties {
		if p := &e.Properties[i]; p.Name == name && p.Edm == EDMString {
			return p.Text, true
		}
	}
	return "", false
}

// LargeColumns returns the columns whose values must be stored in blobs.
func (e *Row) LargeColumns() []string {
	var large []string
	for _, name := range LargeTextColumns {
		if v := e.Text(name); len(v) > MaxColumnUnits && utf16Length(v) > MaxColumnUnits {
			large = append(large, name)
		}
	}
	return large
}

// maxTextUnits is the service's maximum size of a String column, in UTF-16 code units.
const maxTextUnits = 32 * 1024

// ShortenColumns shortens all columns that exceed the service's limit and are not in [LargeTextColumns].
// .NET would not find the values of such columns in blobs, and a rejected row would block its instance.
func (e *Row) ShortenColumns() {
	for i := range e.Properties {
		p := &e.Properties[i]
		if p.Edm == EDMString && !slices.Contains(LargeTextColumns[:], p.Name) {
			p.Text = fitted(p.Name, p.Text, maxTextUnits)
		}
	}
}

// JSONColumns are the columns that contain JSON, which must not be truncated.
var JSONColumns = []string{"OrchestrationInstance", "ParentInstance", "Tags", "ParentTraceContext", "State"}

// fitted returns the text of a column, shortened if it has more than limit UTF-16 code units. JSON
// stays valid JSON.
func fitted(column, text string, limit int) string {
	switch {
	case len(text) <= limit || utf16Length(text) <= limit:
		return text
	case column == "CustomStatus":
		return `"` + strings.TrimSpace(provider.TruncationMark) + `"`
	case slices.Contains(JSONColumns, column):
		return JSONNull
	}
	return truncateUTF16(text, limit-utf16Length(provider.TruncationMark)) + provider.TruncationMark
}

// ColumnBlobName returns a name for the blob with the value of a column. The lower 31 bits of random keep
// the blobs of workers apart that write the same row (AzureTableTrackingStore.cs, GetBlobName).
func (e *Row) ColumnBlobName(column string, random uint32) string {
	kind := e.Text("EventType")
	if kind == "" {
		kind = column
	}
	return fmt.Sprintf("%s/history-%s-%s-%08X-%s.json.gz", e.PartitionKey, e.RowKey, kind, random&math.MaxInt32, column)
}

// Offload replaces the value of a column by the name of its blob (AzureTableTrackingStore.cs,
// CompressLargeMessageAsync).
func (e *Row) Offload(column, blobName string) {
	e.SetString(column, "")
	e.SetString(column+BlobNameSuffix, blobName)
}

// BlobOf returns the name of a column's blob, empty if the value is in the row.
func (e *Row) BlobOf(column string) string { return e.Text(column + BlobNameSuffix) }

// SizeEstimate returns the approximate size of e in a transaction, in bytes: 1 KiB plus the large text
// columns in UTF-16 (AzureTableTrackingStore.cs, GetEstimatedByteCount).
func (e *Row) SizeEstimate() int {
	n := 1024
	for _, name := range LargeTextColumns {
		n += 2 * utf16Length(e.Text(name))
	}
	return n
}

// utf16Length returns the length of s in UTF-16 code units.
func utf16Length(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// truncateUTF16 returns the longest prefix of s with at most limit UTF-16 code units.
func truncateUTF16(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := 0
	for i, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
		if n > limit {
			return s[:i]
		}
	}
	return s
}

// JSON returns the body of a request that writes e. The service infers Int32, Boolean and String;
// DateTime columns are annotated.
func (e *Row) JSON() []byte {
	size := 64 + len(e.PartitionKey) + len(e.RowKey)
	for i := range e.Properties {
		p := &e.Properties[i]
		size += len(p.Name) + len(p.Text) + len(p.Text)/8 + utf8.UTFMax
		if p.Edm == EDMDateTime {
			size += len(p.Name) + len(`"@odata.type":"Edm.DateTime",`)
		}
	}
	w := jsonWriter{buf: make([]byte, 0, size+16*len(e.Properties))}
	w.open("")
	w.str("PartitionKey", e.PartitionKey)
	w.str("RowKey", e.RowKey)
	for i := range e.Properties {
		switch p := &e.Properties[i]; p.Edm {
		case EDMString:
			w.str(p.Name, p.Text)
		case EDMInt32:
			w.int(p.Name, int64(p.num))
		case EDMBoolean:
			w.bool(p.Name, p.num != 0)
		case EDMDateTime:
			w.str(p.Name, p.Text)
			w.key(p.Name + "@odata.type")
			w.buf = strconv.AppendQuote(w.buf, "Edm.DateTime")
		}
	}
	w.close()
	return w.buf
}

// columnJSON returns the output of write, for a column that contains JSON.
func columnJSON(write func(w *jsonWriter)) string {
	var w jsonWriter
	write(&w)
	return string(w.buf)
}

// TagsColumn returns the value of a Tags column; without tags it is the text "null".
func TagsColumn(tags map[string]string) string {
	if tags == nil {
		return JSONNull
	}
	return columnJSON(func(w *jsonWriter) { w.tagsValue(tags) })
}

// FailureColumn returns the value of a FailureDetails column; without a failure it is the text "null".
func FailureColumn(f *history.FailureDetails) string {
	if f == nil {
		return JSONNull
	}
	return columnJSON(func(w *jsonWriter) { w.failure(f) })
}

func traceContextColumn(c *history.TraceContext) string {
	if c == nil {
		return JSONNull
	}
	return columnJSON(func(w *jsonWriter) { w.traceContext(c) })
}

// JSONNull is the value of a JSON column for .NET's null.
const JSONNull = "null"
