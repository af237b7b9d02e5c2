package azsim

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// The column types that JSON cannot express.
const (
	edmInt64    = "Edm.Int64"
	edmDouble   = "Edm.Double"
	edmDateTime = "Edm.DateTime"
	edmGUID     = "Edm.Guid"
	edmBinary   = "Edm.Binary"
)

// column is a property of an entity, with its value as JSON.
type column struct {
	name  string
	typ   string // empty for text, booleans and 32-bit integers
	json  json.RawMessage
	value any // string, bool, int64, float64, time.Time or []byte; used by filters
}

type entity struct {
	partitionKey, rowKey string
	columns              []column
	timestamp            time.Time
	etag                 string
}

// readEntity parses an entity in a request's body. The body may lack the keys.
func readEntity(body []byte) (*entity, error) {
	e := &entity{}
	types := map[string]string{}
	err := eachProperty(body, func(name string, raw json.RawMessage) {
		switch of, isType := strings.CutSuffix(name, "@odata.type"); {
		case isType:
			types[of] = jsonText(string(raw))
		case name == "PartitionKey":
			e.partitionKey = jsonText(string(raw))
		case name == "RowKey":
			e.rowKey = jsonText(string(raw))
		case strings.HasPrefix(name, "odata."), name == "Timestamp", string(raw) == "null":
		default:
			e.columns = append(e.columns, column{name: name, json: raw})
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range e.columns {
		c := &e.columns[i]
		c.typ = types[c.name]
		if err := c.parse(); err != nil {
			return nil, fmt.Errorf("property %s: %w", c.name, err)
		}
	}
	return e, nil
}

// eachProperty calls f for the properties of an object in order.
func eachProperty(body []byte, f func(name string, raw json.RawMessage)) error {
	if !json.Valid(body) {
		return errors.New("not an object")
	}
	body = bytes.TrimSpace(body)
	if body[0] != '{' {
		return errors.New("not an object")
	}
	rest := bytes.TrimLeft(body[1:], " \t\r\n")
	for rest[0] != '}' {
		n := valueLength(rest)
		name := jsonText(string(rest[:n]))
		rest = bytes.TrimLeft(rest[n:], " \t\r\n:")
		n = valueLength(rest)
		f(name, json.RawMessage(rest[:n]))
		rest = bytes.TrimLeft(rest[n:], " \t\r\n,")
	}
	return nil
}

// valueLength returns the length of the JSON value at the start of text. The JSON must be
// valid.
func valueLength(text []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted = !quoted; !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth <= 0 {
				return i + 1 + depth // without the closing bracket of an enclosing value
			}
		case depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return i
		}
	}
	return len(text)
}

// parse sets c.value, and changes c.typ to the form in which the service returns it.
func (c *column) parse() error {
	switch first := c.json[0]; {
	case first == 't' || first == 'f':
		c.value, c.typ = first == 't', ""
		return nil
	case first == '-' || isDigit(first):
		return c.parseNumber(json.Number(c.json))
	case first == '"':
		return c.parseText(jsonText(string(c.json)))
	}
	return fmt.Errorf("%s is not text, a number or a boolean", c.json)
}

func (c *column) parseNumber(n json.Number) error {
	if i, err := strconv.ParseInt(n.String(), 10, 32); err == nil && c.typ != edmDouble {
		c.value, c.typ = i, ""
		return nil
	}
	f, err := n.Float64()
	c.value = f
	if c.typ == edmDouble && strings.ContainsAny(n.String(), ".eE") {
		c.typ = "" // the number has a fraction or an exponent, which implies the type
	}
	return err
}

func (c *column) parseText(s string) (err error) {
	switch c.typ {
	case edmInt64:
		c.value, err = strconv.ParseInt(s, 10, 64)
	case edmDouble: // NaN and the infinities are text
		c.value, err = strconv.ParseFloat(s, 64)
	case edmDateTime:
		c.value, err = time.Parse(time.RFC3339Nano, s)
	case edmBinary:
		c.value, err = base64.StdEncoding.DecodeString(s)
	case edmGUID:
		c.value = s
	default:
		c.value, c.typ = s, ""
	}
	return err
}

// The service's limits of an entity.
const (
	maxColumns    = 252
	maxTextUnits  = 32 << 10
	maxBinary     = 64 << 10
	maxKeyUnits   = 512
	maxEntitySize = 1 << 20
)

// check returns the refusal of an invalid entity, or nil.
func (e *entity) check() *reply {
	for _, key := range []string{e.partitionKey, e.rowKey} {
		if len(utf16.Encode([]rune(key))) > maxKeyUnits || strings.ContainsFunc(key, notInKeys) {
			return refusal(TableService, http.StatusBadRequest, "InvalidInput", "0:One of the request inputs is not valid.")
		}
	}
	size := 0
	for _, c := range e.columns {
		size += len(c.name) + len(c.json)
		text, isText := c.value.(string)
		binary, _ := c.value.([]byte)
		if isText && len(utf16.Encode([]rune(text))) > maxTextUnits || len(binary) > maxBinary {
			return refusal(TableService, http.StatusBadRequest, "PropertyValueTooLarge", "The property value exceeds the maximum allowed size (64KB).")
		}
	}
	switch {
	case len(e.columns) > maxColumns:
		return refusal(TableService, http.StatusBadRequest, "TooManyProperties", "The entity contains more properties than allowed.")
	case size > maxEntitySize:
		return refusal(TableService, http.StatusBadRequest, "EntityTooLarge", "The entity is larger than the maximum allowed size (1MB).")
	}
	return nil
}

func notInKeys(c rune) bool {
	return c < 0x20 || 0x7F <= c && c <= 0x9F || c == '/' || c == '\\' || c == '#' || c == '?'
}

// set adds or replaces a column.
func (e *entity) set(c column) {
	if i := slices.IndexFunc(e.columns, func(o column) bool { return o.name == c.name }); i >= 0 {
		e.columns[i] = c
		return
	}
	e.columns = append(e.columns, c)
}

// value returns the value of a column for a filter.
func (e *entity) value(name string) (any, bool) {
	switch name {
	case "PartitionKey":
		return e.partitionKey, true
	case "RowKey":
		return e.rowKey, true
	case "Timestamp":
		return e.timestamp, true
	}
	for _, c := range e.columns {
		if c.name == name {
			return c.value, true
		}
	}
	return nil, false
}

// stamp sets the time of an entity's last change, which also determines its ETag.
func (e *entity) stamp(at time.Time) {
	e.timestamp = at
	e.etag = "W/\"datetime'" + url.QueryEscape(at.Format(ticks)) + "'\""
}

const ticks = "2006-01-02T15:04:05.0000000Z"

// writeJSON writes e in the form of a response, with the wanted columns; an empty list means
// all.
func (e *entity) writeJSON(b *bytes.Buffer, wanted []string) {
	property := func(name string, value []byte) {
		b.WriteByte(',')
		b.Write(quoted(name))
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteString(`{"odata.etag":`)
	b.Write(quoted(e.etag))
	if isWanted(wanted, "PartitionKey") {
		property("PartitionKey", quoted(e.partitionKey))
	}
	if isWanted(wanted, "RowKey") {
		property("RowKey", quoted(e.rowKey))
	}
	if isWanted(wanted, "Timestamp") {
		property("Timestamp", quoted(e.timestamp.Format(ticks)))
	}
	for _, c := range e.columns {
		if !isWanted(wanted, c.name) {
			continue
		}
		if c.typ != "" {
			property(c.name+"@odata.type", quoted(c.typ))
		}
		property(c.name, c.json)
	}
	b.WriteByte('}')
}

func isWanted(wanted []string, name string) bool {
	return len(wanted) == 0 || slices.Contains(wanted, name)
}

func quoted(s string) []byte {
	if isPlain(s) {
		return append(append(append(make([]byte, 0, len(s)+2), '"'), s...), '"')
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // text can always be encoded
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func compareKeys(x, y *entity) int {
	return cmp.Or(cmp.Compare(x.partitionKey, y.partitionKey), cmp.Compare(x.rowKey, y.rowKey))
}

func (e *entity) row() Row {
	r := Row{PartitionKey: e.partitionKey, RowKey: e.rowKey, Columns: map[string]string{}}
	for _, c := range e.columns {
		r.Columns[c.name] = string(c.json)
	}
	return r
}
