package azurestorage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A message to the tracking queue is a JSON object whose one member Rows has the
// rows to be added, as they go to the table service.

// maxTrackingBytes bounds the JSON of a message to the tracking queue. A row has
// fewer bytes.
const maxTrackingBytes = 44 << 10

// rowsJSON returns rows as a message to the tracking queue has them.
func rowsJSON(rows []entity) string {
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

// splitTracking divides rows into messages that a queue takes, in their order.
func splitTracking(rows []entity) [][]entity {
	var out [][]entity
	first, size := 0, 0
	for i := range rows {
		n := len(rows[i].JSON()) + len(",")
		if i > first && size+n > maxTrackingBytes {
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

// decodeRows reads a message to the tracking queue.
func decodeRows(raw []byte) ([]entity, error) {
	var message struct{ Rows []json.RawMessage }
	if err := json.Unmarshal(raw, &message); err != nil {
		return nil, fmt.Errorf("decode tracking message: %w", err)
	}
	if len(message.Rows) == 0 {
		return nil, errors.New("decode tracking message: it has no rows")
	}
	rows := make([]entity, len(message.Rows))
	for i, raw := range message.Rows {
		var err error
		if rows[i], err = decodeEntity(raw); err != nil {
			return nil, fmt.Errorf("decode tracking message: row %d: %w", i, err)
		}
	}
	return rows, nil
}

// decodeEntity reads what [entity.JSON] writes.
func decodeEntity(raw []byte) (e entity, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return entity{}, errors.New("it is not an object")
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return entity{}, err
		}
		name, _ := token.(string) // of a member it is nothing else
		value, err := d.Token()
		if err != nil {
			return entity{}, err
		}
		if err := e.setDecoded(name, value); err != nil {
			return entity{}, fmt.Errorf("column %s: %w", name, err)
		}
	}
	if e.PartitionKey == "" || e.RowKey == "" {
		return entity{}, errors.New("it has no keys")
	}
	return e, nil
}

func (e *entity) setDecoded(name string, value json.Token) error {
	column, isType := strings.CutSuffix(name, "@odata.type")
	switch v := value.(type) {
	case string:
		switch {
		case name == "PartitionKey":
			e.PartitionKey = v
		case name == "RowKey":
			e.RowKey = v
		case isType && v == "Edm.DateTime":
			i := slices.IndexFunc(e.properties, func(p property) bool { return p.name == column && p.edm == edmString })
			if i < 0 {
				return errors.New("its value is not before its type")
			}
			e.properties[i].edm = edmDateTime
		case isType:
			return fmt.Errorf("unknown type %q", v)
		default:
			e.setString(name, v)
		}
	case bool:
		e.setBool(name, v)
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return err
		}
		e.setInt(name, int(n))
	default:
		return fmt.Errorf("unexpected %v", value)
	}
	return nil
}
