package azsim

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// The types of columns that JSON does not tell apart.
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
	typ   string // empty for text, booleans and 32-bit numbers
	json  json.RawMessage
	value any // string, bool, int64, float64, time.Time or []byte, for filters
}

type entity struct {
	partitionKey, rowKey string
	columns              []column
	timestamp            time.Time
	etag                 string
}

// readEntity reads an entity out of the body of a request. Its keys may be
// missing there.
func readEntity(body []byte) (*entity, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if tok, err := dec.Token(); err != nil {
		return nil, err
	} else if tok != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	e := &entity{}
	types := map[string]string{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := tok.(string) // keys of objects are text
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
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
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than an object")
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

// parse sets c.value, and c.typ and c.json as the service answers them.
func (c *column) parse() error {
	var v any
	dec := json.NewDecoder(bytes.NewReader(c.json))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return err
	}
	switch v := v.(type) {
	case bool:
		c.value, c.typ = v, ""
		return nil
	case json.Number:
		return c.parseNumber(v)
	case string:
		return c.parseText(v)
	}
	return fmt.Errorf("%s is neither text nor a number", c.json)
}

func (c *column) parseNumber(n json.Number) error {
	if i, err := strconv.ParseInt(n.String(), 10, 32); err == nil && c.typ != edmDouble {
		c.value, c.typ = i, ""
		return nil
	}
	f, err := n.Float64()
	c.value = f
	if c.typ == edmDouble && strings.ContainsAny(n.String(), ".eE") {
		c.typ = "" // it shows
	}
	return err
}

func (c *column) parseText(s string) (err error) {
	switch c.typ {
	case edmInt64:
		c.value, err = strconv.ParseInt(s, 10, 64)
	case edmDouble: // NaN and infinities are text
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

// The service's bounds on entities.
const (
	maxColumns    = 252
	maxTextUnits  = 32 << 10
	maxBinary     = 64 << 10
	maxKeyUnits   = 512
	maxEntitySize = 1 << 20
)

// check returns why the service refuses an entity, nil if it takes it.
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

// set gives e the value of c, in the place of one that it had.
func (e *entity) set(c column) {
	if i := slices.IndexFunc(e.columns, func(o column) bool { return o.name == c.name }); i >= 0 {
		e.columns[i] = c
		return
	}
	e.columns = append(e.columns, c)
}

// value returns a column's value for a filter.
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

// stamp gives an entity the time of its last change, which makes its ETag.
func (e *entity) stamp(at time.Time) {
	e.timestamp = at
	e.etag = "W/\"datetime'" + url.QueryEscape(at.Format(ticks)) + "'\""
}

const ticks = "2006-01-02T15:04:05.0000000Z"

// writeJSON writes e as an answer does, with the wanted columns, or all.
func (e *entity) writeJSON(b *bytes.Buffer, wanted []string) {
	fmt.Fprintf(b, `{"odata.etag":%s`, quoted(e.etag))
	if isWanted(wanted, "PartitionKey") {
		fmt.Fprintf(b, `,"PartitionKey":%s`, quoted(e.partitionKey))
	}
	if isWanted(wanted, "RowKey") {
		fmt.Fprintf(b, `,"RowKey":%s`, quoted(e.rowKey))
	}
	if isWanted(wanted, "Timestamp") {
		fmt.Fprintf(b, `,"Timestamp":%s`, quoted(e.timestamp.Format(ticks)))
	}
	for _, c := range e.columns {
		if !isWanted(wanted, c.name) {
			continue
		}
		if c.typ != "" {
			fmt.Fprintf(b, `,%s:%s`, quoted(c.name+"@odata.type"), quoted(c.typ))
		}
		fmt.Fprintf(b, `,%s:%s`, quoted(c.name), c.json)
	}
	b.WriteByte('}')
}

func isWanted(wanted []string, name string) bool {
	return len(wanted) == 0 || slices.Contains(wanted, name)
}

func quoted(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // text always encodes
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func compareKeys(x, y *entity) int {
	return cmp.Or(cmp.Compare(x.partitionKey, y.partitionKey), cmp.Compare(x.rowKey, y.rowKey))
}
