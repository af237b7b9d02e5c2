package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A message to the tracking queue is a JSON object with one member, Rows. It contains the rows to
// insert in the table service's format.

// MaxTrackingBytes is the maximum size of a message to the tracking queue, in bytes of JSON. A single
// row is always smaller.
const MaxTrackingBytes = 44 << 10

// RowsJSON returns the message to the tracking queue with the given rows.
func RowsJSON(rows []Row) string {
	var b strings.Builder
	b.WriteString(`{"Rows":[`)
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(rows[i].JSON())
	}
	b.WriteString(`]}`)
	return b.String()
}

// SplitTracking divides rows into messages within the size limit, in order.
func SplitTracking(rows []Row) [][]Row {
	var out [][]Row
	first, size := 0, 0
	for i := range rows {
		n := len(rows[i].JSON()) + len(",")
		if i > first && size+n > MaxTrackingBytes {
			out = append(out, rows[first:i])
			first, size = i, 0
		}
		size += n
	}
	if first < len(rows) {
		out = append(out, rows[first:])
	}
	return out
}

// DecodeRows decodes a message to the tracking queue.
func DecodeRows(raw []byte) ([]Row, error) {
	var message struct{ Rows []json.RawMessage }
	if err := json.Unmarshal(raw, &message); err != nil {
		return nil, fmt.Errorf("decode tracking message: %w", err)
	}
	if len(message.Rows) == 0 {
		return nil, errors.New("decode tracking message: it has no rows")
	}
	rows := make([]Row, len(message.Rows))
	for i, raw := range message.Rows {
		var err error
		if rows[i], err = decodeEntity(raw); err != nil {
			return nil, fmt.Errorf("decode tracking message: row %d: %w", i, err)
		}
	}
	return rows, nil
}

// decodeEntity decodes the output of [Row.JSON].
func decodeEntity(raw []byte) (e Row, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Row{}, errors.New("it is not an object")
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return Row{}, err
		}
		name, _ := token.(string) // the name of a member is always a string
		value, err := d.Token()
		if err != nil {
			return Row{}, err
		}
		if err := e.setDecoded(name, value); err != nil {
			return Row{}, fmt.Errorf("column %s: %w", name, err)
		}
	}
	if e.PartitionKey == "" || e.RowKey == "" {
		return Row{}, errors.New("it has no keys")
	}
	return e, nil
}

func (e *Row) setDecoded(name string, value json.Token) error {
	column, isType := strings.CutSuffix(name, "@odata.type")
	switch v := value.(type) {
	case string:
		switch {
		case name == "PartitionKey":
			e.PartitionKey = v
		case name == "RowKey":
			e.RowKey = v
		case isType && v == "Edm.DateTime":
			i := slices.IndexFunc(e.Properties, func(p property) bool { return p.Name == column && p.Edm == EDMString })
			if i < 0 {
				return errors.New("its type precedes its value")
			}
			e.Properties[i].Edm = EDMDateTime
		case isType:
			return fmt.Errorf("unknown type %q", v)
		default:
			e.SetString(name, v)
		}
	case bool:
		e.setBool(name, v)
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return err
		}
		e.SetInt(name, int(n))
	default:
		return fmt.Errorf("unexpected %v", value)
	}
	return nil
}
