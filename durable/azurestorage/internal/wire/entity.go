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

// An Row is a row of a table as it is sent to the service. Columns that are
// null are left out: the service drops them anyway, and a merge leaves the
// stored value of both kinds alone.
//
// Its JSON is made here because the SDK's own doubles apostrophes in the keys,
// which would store an instance under a key that .NET never looks for.
type Row struct {
	PartitionKey string
	RowKey       string

	Properties []property
}

// A property is a column's value with its EDM type.
type property struct {
	Name string
	Edm  edmType
	Text string // of a String; a DateTime as sent
	num  int32  // of an Int32; 1 for a Boolean that is true
}

type edmType int

// The EDM types of the columns that DurableTask uses.
const (
	EDMString edmType = iota
	EDMInt32
	EDMBoolean
	EDMDateTime
)

// LargeTextColumns are the columns whose values go to a blob when they are too
// large, and those that count in the estimated size
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// VariableSizeEntityProperties).
var LargeTextColumns = [...]string{
	"Name", "Input", "Result", "Output", "Reason", "Details", "Correlation", "FailureDetails", "Tags",
}

// MaxColumnUnits is how many UTF-16 code units a column of largeTextColumns may
// have (AzureTableTrackingStore.cs, MaxTablePropertySizeInBytes, which is 60 KiB
// of UTF-16).
const MaxColumnUnits = 60 * 1024 / 2

// BlobNameSuffix makes the name of the column that holds the blob's name out of
// the one whose value is in the blob.
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

// SetString sets a column to text.
func (e *Row) SetString(name, v string) { e.set(property{Name: name, Edm: EDMString, Text: v}) }

// setOptional sets a column to null if v is nil.
func (e *Row) setOptional(name string, v *string) {
	if v == nil {
		e.remove(name)
		return
	}
	e.SetString(name, *v)
}

// SetInt cuts v to 32 bits; no number of ours gets there.
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

// SetTime sets a column to a time.
func (e *Row) SetTime(name string, t time.Time) {
	e.set(property{Name: name, Edm: EDMDateTime, Text: formatEDMTime(t)})
}

// SetOptionalTime sets a column to null if t is zero.
func (e *Row) SetOptionalTime(name string, t time.Time) {
	if t.IsZero() {
		e.remove(name)
		return
	}
	e.SetTime(name, t)
}

// minEDMTime is the earliest time that a table can hold.
var minEDMTime = time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC)

// formatEDMTime writes a DateTime with 7 decimals, as Azure.Data.Tables does. A
// time that a table cannot hold, such as that of a message which came without
// one, becomes the earliest that it can: a refused row would block its instance
// for ever.
func formatEDMTime(t time.Time) string {
	t = t.UTC()
	if t.Before(minEDMTime) {
		t = minEDMTime
	}
	return t.Format("2006-01-02T15:04:05.0000000Z")
}

// Text returns the value of a String column, empty if it is null.
func (e *Row) Text(name string) string {
	v, _ := e.LookUp(name)
	return v
}

// LookUp returns the value of a text column, and whether there is one.
func (e *Row) LookUp(name string) (v string, ok bool) {
	for i := range e.Properties {
		if p := &e.Properties[i]; p.Name == name && p.Edm == EDMString {
			return p.Text, true
		}
	}
	return "", false
}

// LargeColumns returns the columns that are too large for the table, whose
// values must go to blobs.
func (e *Row) LargeColumns() []string {
	var large []string
	for _, name := range LargeTextColumns {
		if v := e.Text(name); len(v) > MaxColumnUnits && utf16Length(v) > MaxColumnUnits {
			large = append(large, name)
		}
	}
	return large
}

// maxTextUnits is how many UTF-16 code units a column may have at most.
const maxTextUnits = 32 * 1024

// Fit shortens the columns that do not go to blobs, as .NET would not find them
// there, and are larger than the service takes: a refused row would block its
// instance for ever.
func (e *Row) Fit() {
	for i := range e.Properties {
		p := &e.Properties[i]
		if p.Edm == EDMString && !slices.Contains(LargeTextColumns[:], p.Name) {
			p.Text = fitted(p.Name, p.Text, maxTextUnits)
		}
	}
}

// JSONColumns are the columns that hold JSON, which cannot be cut anywhere.
var JSONColumns = []string{"OrchestrationInstance", "ParentInstance", "Tags", "ParentTraceContext", "State"}

// fitted returns a column's text, or what is left of one of more than limit
// UTF-16 code units. What is JSON stays JSON.
func fitted(column, text string, limit int) string {
	switch {
	case len(text) <= limit || utf16Length(text) <= limit:
		return text
	case column == "CustomStatus":
		return `"` + strings.TrimSpace(provider.CutMark) + `"`
	case slices.Contains(JSONColumns, column):
		return JSONNull
	}
	return truncateUTF16(text, limit-utf16Length(provider.CutMark)) + provider.CutMark
}

// ColumnBlobName names the blob for the value of a column. random, with 31 bits, keeps workers that race for one row apart
// (AzureTableTrackingStore.cs, GetBlobName).
func (e *Row) ColumnBlobName(column string, random uint32) string {
	kind := e.Text("EventType")
	if kind == "" {
		kind = column
	}
	return fmt.Sprintf("%s/history-%s-%s-%08X-%s.json.gz", e.PartitionKey, e.RowKey, kind, random&math.MaxInt32, column)
}

// Offload replaces the value of a column by the name of the blob that has it
// (AzureTableTrackingStore.cs, CompressLargeMessageAsync).
func (e *Row) Offload(column, blobName string) {
	e.SetString(column, "")
	e.SetString(column+BlobNameSuffix, blobName)
}

// OffloadedTo returns the name of the blob that a column went to, empty if it
// went to none.
func (e *Row) OffloadedTo(column string) string { return e.Text(column + BlobNameSuffix) }

// SizeEstimate returns roughly how many bytes e takes up in a transaction: 1 KiB
// and its variable columns in UTF-16 (AzureTableTrackingStore.cs,
// GetEstimatedByteCount).
func (e *Row) SizeEstimate() int {
	n := 1024
	for _, name := range LargeTextColumns {
		n += 2 * utf16Length(e.Text(name))
	}
	return n
}

// utf16Length returns how many UTF-16 code units s has.
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

// truncateUTF16 returns the longest beginning of s that has at most limit UTF-16
// code units.
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

// JSON returns the body of a request that writes e. The service infers Int32, Boolean and
// String; a DateTime is annotated.
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

// columnJSON returns what write writes, for a column that holds JSON.
func columnJSON(write func(w *jsonWriter)) string {
	var w jsonWriter
	write(&w)
	return string(w.buf)
}

// TagsColumn returns the value of a Tags column: the text null for no tags.
func TagsColumn(tags map[string]string) string {
	if tags == nil {
		return JSONNull
	}
	return columnJSON(func(w *jsonWriter) { w.tagsValue(tags) })
}

// FailureColumn returns what a column of failure details holds.
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

// JSONNull is what a column of JSON holds where .NET has null.
const JSONNull = "null"
