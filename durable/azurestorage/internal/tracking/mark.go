package tracking

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// A mark is what a sentinel says of the tracking records.
type mark struct {
	ExecutionID string
	// Events is how many of the history's first events are recorded for certain.
	Events int
	// Before is what to record of the execution before, if that is not certain:
	// messages to the tracking queue, compressed, as Base64.
	Before string `json:",omitempty"`
}

// column is the column of a sentinel that has a mark as JSON. .NET
// takes no notice of it.
const column = "Tracking"

// maxMarkBytes is how long the text of a mark may be: as many characters as
// a column can have.
const maxMarkBytes = 32_000

// errMarkTooLong says that a mark does not fit into a column.
var errMarkTooLong = fmt.Errorf("longer than %d bytes", maxMarkBytes)

// encode returns the text of a mark that keeps rows of the execution before.
func (m mark) encode(before []wire.Row) (string, error) {
	if len(before) > 0 {
		packed, err := wire.Compress([]byte(wire.RowsJSON(before)))
		if err != nil {
			return "", err
		}
		m.Before = base64.StdEncoding.EncodeToString(packed)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	if len(text) > maxMarkBytes {
		return "", errMarkTooLong
	}
	return string(text), nil
}

// decodeMark reads the column of a sentinel, of which other programs may
// have kept an old one.
func decodeMark(text string) (m mark, before []wire.Row, err error) {
	if text == "" {
		return mark{}, nil, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	if m.Before == "" {
		return m, nil, nil
	}
	packed, err := base64.StdEncoding.DecodeString(m.Before)
	if err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	raw, err := wire.Decompress(packed)
	if err == nil {
		before, err = wire.DecodeRows(raw)
	}
	if err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	return m, before, nil
}

// encodeWhatFits returns the text of a mark that keeps rows of the execution
// before: whole, or without their texts, or, of more than any process takes at
// once unless it is configured to, the first and the last. What is left out is
// missing among the records only if the worker dies before it has sent it.
func (m mark) encodeWhatFits(before []wire.Row) (string, error) {
	text, err := m.encode(before)
	if !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	short := withoutTexts(before)
	if text, err = m.encode(short); !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	return m.encode(slices.Concat(short[:1], short[len(short)-rowsOfEnd:]))
}

// rowsOfEnd is how many rows tell that an execution continued as new.
const rowsOfEnd = 3

// withoutTexts returns rows without what makes them long.
func withoutTexts(rows []wire.Row) []wire.Row {
	short := make([]wire.Row, len(rows))
	for i, row := range rows {
		short[i] = wire.Row{PartitionKey: row.PartitionKey, RowKey: row.RowKey}
		for _, p := range row.Properties {
			if p.Edm != wire.EDMString || len(p.Text) <= maxShortText {
				short[i].Properties = append(short[i].Properties, p)
			}
		}
	}
	return short
}

// maxShortText is how long a text may be that withoutTexts keeps.
const maxShortText = 40
