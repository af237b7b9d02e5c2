package entity

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// tick is the resolution of a DateTime in .NET.
const tick = 100 * time.Nanosecond

// zoneless marks UTC times that are written without a zone. DurableTask loses the zone when it
// adds a tick (DurableTask.Core/Entities/StateFormat/MessageSorter.cs, LabelOutgoingMessage).
var zoneless = time.FixedZone("zoneless", 0)

func parseStamp(s string) (time.Time, error) {
	t, err := eventjson.ParseTime(s)
	if err != nil {
		return time.Time{}, err
	}
	if i := strings.IndexByte(s, 'T'); i >= 0 && !strings.ContainsAny(s[i:], "Z+-") {
		t = t.In(zoneless)
	}
	return t, nil
}

func appendStamp(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = eventjson.AppendTime(b, t)
	if t.Location() == zoneless && b[len(b)-1] == 'Z' {
		b = b[:len(b)-1]
	}
	return append(b, '"')
}

// A stamp decodes a DateTime with or without a zone.
type stamp struct{ time.Time }

// UnmarshalJSON decodes a DateTime; null is the zero time.
func (s *stamp) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err != nil || text == nil {
		return err
	}
	var err error
	s.Time, err = parseStamp(*text)
	return err
}
