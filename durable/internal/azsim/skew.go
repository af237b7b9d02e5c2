package azsim

import (
	"regexp"
	"time"
)

// instant is a time as JSON and XML hold it.
var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,7})?(Z|\+00:00)|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`)

// shiftTimes returns text with all times in it moved by d. Those in ETags, which
// are escaped, stay.
func shiftTimes(text []byte, d time.Duration) []byte {
	if d == 0 || len(text) == 0 {
		return text
	}
	return instant.ReplaceAllFunc(text, func(b []byte) []byte {
		for _, layout := range []string{time.RFC1123, time.RFC3339Nano} {
			t, err := time.Parse(layout, string(b))
			if err != nil {
				continue
			}
			if t.Year() < 1902 || t.Year() > 9998 { // stands for never
				return b
			}
			if layout == time.RFC1123 {
				return []byte(t.Add(d).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
			}
			return []byte(t.Add(d).UTC().Format("2006-01-02T15:04:05.0000000Z"))
		}
		return b
	})
}

// skewed returns r with all times in it moved by d.
func (r *reply) skewed(d time.Duration) *reply {
	if d == 0 {
		return r
	}
	moved := *r
	moved.body = shiftTimes(r.body, d)
	moved.header = r.header.Clone()
	for name, values := range moved.header {
		for i := range values {
			moved.header[name][i] = string(shiftTimes([]byte(values[i]), d))
		}
	}
	return &moved
}
