package azurestorage

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

// An entity is a row of a table as it is sent to the service. Columns that are
// null are left out: the service drops them anyway, and a merge leaves the
// stored value of both kinds alone.
//
// Its JSON is made here because the SDK's own doubles apostrophes in the keys,
// which would store an instance under a key that .NET never looks for.
type entity struct {
	PartitionKey string
	RowKey       string

	properties []property
}

// A property is a column's value with its EDM type.
type property struct {
	name string
	edm  edmType
	text string // of a String; a DateTime as sent
	num  int32  // of an Int32; 1 for a Boolean that is true
}

type edmType int

// The EDM types of the columns that DurableTask uses.
const (
	edmString edmType = iota
	edmInt32
	edmBoolean
	edmDateTime
)

// largeTextColumns are the columns whose values go to a blob when they are too
// large, and those that count in the estimated size
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// VariableSizeEntityProperties).
var largeTextColumns = [...]string{
	"Name", "Input", "Result", "Output", "Reason", "Details", "Correlation", "FailureDetails", "Tags",
}

// maxColumnUnits is how many UTF-16 code units a column of largeTextColumns may
// have (AzureTableTrackingStore.cs, MaxTablePropertySizeInBytes, which is 60 KiB
// of UTF-16).
const maxColumnUnits = 60 * 1024 / 2

// blobNameSuffix makes the name of the column that holds the blob's name out of
// the one whose value is in the blob.
const blobNameSuffix = "BlobName"

func (e *entity) set(p property) {
	for i := range e.properties {
		if e.properties[i].name == p.name {
			e.properties[i] = p
			return
		}
	}
	e.properties = append(e.properties, p)
}

func (e *entity) remove(name string) {
	for i := range e.properties {
		if e.properties[i].name == name {
			e.properties = append(e.properties[:i], e.properties[i+1:]...)
			return
		}
	}
}

func (e *entity) setString(name, v string) { e.set(property{name: name, edm: edmString, text: v}) }

// setOptional sets a column to null if v is nil.
func (e *entity) setOptional(name string, v *string) {
	if v == nil {
		e.remove(name)
		return
	}
	e.setString(name, *v)
}

// setInt cuts v to 32 bits; no number of ours gets there.
func (e *entity) setInt(name string, v int) {
	n := int32(max(math.MinInt32, min(math.MaxInt32, v)))
	e.set(property{name: name, edm: edmInt32, num: n})
}

func (e *entity) setBool(name string, v bool) {
	p := property{name: name, edm: edmBoolean}
	if v {
		p.num = 1
	}
	e.set(p)
}

func (e *entity) setTime(name string, t time.Time) {
	e.set(property{name: name, edm: edmDateTime, text: formatEDMTime(t)})
}

// setOptionalTime sets a column to null if t is zero.
func (e *entity) setOptionalTime(name string, t time.Time) {
	if t.IsZero() {
		e.remove(name)
		return
	}
	e.setTime(name, t)
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

// text returns the value of a String column, empty if it is null.
func (e *entity) text(name string) string {
	v, _ := e.lookUp(name)
	return v
}

// lookUp returns the value of a text column, and whether there is one.
func (e *entity) lookUp(name string) (v string, ok bool) {
	for i := range e.properties {
		if p := &e.properties[i]; p.name == name && p.edm == edmString {
			return p.text, true
		}
	}
	return "", false
}

// largeColumns returns the columns that are too large for the table, whose
// values must go to blobs.
func (e *entity) largeColumns() []string {
	var large []string
	for _, name := range largeTextColumns {
		if v := e.text(name); len(v) > maxColumnUnits && utf16Length(v) > maxColumnUnits {
			large = append(large, name)
		}
	}
	return large
}

// maxTextUnits is how many UTF-16 code units a column may have at most.
const maxTextUnits = 32 * 1024

// fit shortens the columns that do not go to blobs, as .NET would not find them
// there, and are larger than the service takes: a refused row would block its
// instance for ever.
func (e *entity) fit() {
	for i := range e.properties {
		p := &e.properties[i]
		if p.edm == edmString && !slices.Contains(largeTextColumns[:], p.name) {
			p.text = fitted(p.name, p.text, maxTextUnits)
		}
	}
}

// jsonColumns are the columns that hold JSON, which cannot be cut anywhere.
var jsonColumns = []string{"OrchestrationInstance", "ParentInstance", "Tags", "ParentTraceContext", "State"}

// fitted returns a column's text, or what is left of one of more than limit
// UTF-16 code units. What is JSON stays JSON.
func fitted(column, text string, limit int) string {
	switch {
	case len(text) <= limit || utf16Length(text) <= limit:
		return text
	case column == "CustomStatus":
		return `"` + strings.TrimSpace(provider.CutMark) + `"`
	case slices.Contains(jsonColumns, column):
		return jsonNull
	}
	return truncateUTF16(text, limit-utf16Length(provider.CutMark)) + provider.CutMark
}

// columnBlobName names the blob for the value of a column. random, of which 31
// bits are used, keeps workers that race for one row apart
// (AzureTableTrackingStore.cs, GetBlobName).
func (e *entity) columnBlobName(column string, random uint32) string {
	kind := e.text("EventType")
	if kind == "" {
		kind = column
	}
	return fmt.Sprintf("%s/history-%s-%s-%08X-%s.json.gz", e.PartitionKey, e.RowKey, kind, random&math.MaxInt32, column)
}

// offload replaces the value of a column by the name of the blob that has it
// (AzureTableTrackingStore.cs, CompressLargeMessageAsync).
func (e *entity) offload(column, blobName string) {
	e.setString(column, "")
	e.setString(column+blobNameSuffix, blobName)
}

// offloadedTo returns the name of the blob that a column went to, empty if it
// went to none.
func (e *entity) offloadedTo(column string) string { return e.text(column + blobNameSuffix) }

// sizeEstimate returns roughly how many bytes e takes up in a transaction: 1 KiB
// and its variable columns in UTF-16 (AzureTableTrackingStore.cs,
// GetEstimatedByteCount).
func (e *entity) sizeEstimate() int {
	n := 1024
	for _, name := range largeTextColumns {
		n += 2 * utf16Length(e.text(name))
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

// JSON returns the body of a request that writes e. Int32, Boolean and String
// are what they look like, a DateTime is annotated.
func (e *entity) JSON() []byte {
	size := 64 + len(e.PartitionKey) + len(e.RowKey)
	for i := range e.properties {
		p := &e.properties[i]
		size += len(p.name) + len(p.text) + len(p.text)/8 + utf8.UTFMax
		if p.edm == edmDateTime {
			size += len(p.name) + len(`"@odata.type":"Edm.DateTime",`)
		}
	}
	w := jsonWriter{buf: make([]byte, 0, size+16*len(e.properties))}
	w.open("")
	w.str("PartitionKey", e.PartitionKey)
	w.str("RowKey", e.RowKey)
	for i := range e.properties {
		switch p := &e.properties[i]; p.edm {
		case edmString:
			w.str(p.name, p.text)
		case edmInt32:
			w.int(p.name, int64(p.num))
		case edmBoolean:
			w.bool(p.name, p.num != 0)
		case edmDateTime:
			w.str(p.name, p.text)
			w.key(p.name + "@odata.type")
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

// tagsColumn returns the value of a Tags column: the text null for no tags.
func tagsColumn(tags map[string]string) string {
	if tags == nil {
		return jsonNull
	}
	return columnJSON(func(w *jsonWriter) { w.tagsValue(tags) })
}

func failureColumn(f *history.FailureDetails) string {
	if f == nil {
		return jsonNull
	}
	return columnJSON(func(w *jsonWriter) { w.failure(f) })
}

func traceContextColumn(c *history.TraceContext) string {
	if c == nil {
		return jsonNull
	}
	return columnJSON(func(w *jsonWriter) { w.traceContextValue(c) })
}

// jsonNull is what a column of JSON holds where .NET has null.
const jsonNull = "null"
