package eventjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Time is the JSON of a DateTime. The zero time stands for null.
type Time struct{ time.Time }

// UnmarshalJSON decodes a DateTime.
func (t *Time) UnmarshalJSON(data []byte) error {
	var s *string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s == nil {
		t.Time = time.Time{}
		return nil
	}
	var err error
	t.Time, err = ParseTime(*s)
	return err
}

// ParseTime parses a DateTime or DateTimeOffset. Text without a zone is UTC. A time that is
// outside the years 1 to 9999 in UTC becomes the nearest DateTime.
func ParseTime(s string) (time.Time, error) {
	layout := time.RFC3339Nano
	if i := strings.IndexByte(s, 'T'); i >= 0 && !strings.ContainsAny(s[i:], "Z+-") {
		layout = "2006-01-02T15:04:05.999999999"
	}
	t, err := time.Parse(layout, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse time %q: %w", s, err)
	}
	t = t.UTC().Truncate(100 * time.Nanosecond)
	switch {
	case t.Year() < 1:
		return time.Time{}, nil
	case t.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC), nil
	}
	return t, nil
}
