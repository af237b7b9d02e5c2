package web

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Query holds the parameters of a URL by their names in lower case: the
// extension does not mind their case.
type Query map[string][]string

// ParseQuery reads what can be read of a query string, as .NET does.
func ParseQuery(raw string) Query {
	q := Query{}
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil || name == "" {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			continue
		}
		name = strings.ToLower(name)
		q[name] = append(q[name], value)
	}
	return q
}

// Text returns the first value of a parameter, "" if it is not given.
func (q Query) Text(name string) string {
	if values := q[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Boolean returns a parameter that is true or false in any case, else byDefault
// (HttpApiHandler.cs, TryGetBooleanQueryParameterValue).
func (q Query) Boolean(name string, byDefault bool) bool {
	switch strings.ToLower(strings.TrimSpace(q.Text(name))) {
	case "true":
		return true
	case "false":
		return false
	}
	return byDefault
}

// Number returns a whole number; ok is false if there is none.
func (q Query) Number(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimSpace(q.Text(name)))
	return n, err == nil
}

// Seconds returns a time given in seconds, with a fraction if need be; ok is
// false if there is none. Times too long for a duration are cut.
func (q Query) Seconds(name string) (d time.Duration, ok bool) {
	s, err := strconv.ParseFloat(strings.TrimSpace(q.Text(name)), 64)
	if err != nil || math.IsNaN(s) {
		return 0, false
	}
	const longest = math.MaxInt64 / 1e9 / 2
	return time.Duration(min(max(s, -longest), longest) * float64(time.Second)), true
}

// Statuses returns the runtime statuses in a parameter that may be repeated and
// hold lists. Names count in their own case, numbers too; what is neither is
// dropped (HttpApiHandler.cs, TryGetIEnumerableQueryParameterValue).
func (q Query) Statuses(name string) []history.RuntimeStatus {
	var out []history.RuntimeStatus
	for _, list := range q[strings.ToLower(name)] {
		for word := range strings.SplitSeq(list, ",") {
			word = strings.TrimSpace(word)
			if s, ok := history.ParseRuntimeStatus(word); ok {
				out = append(out, s)
			} else if n, err := strconv.Atoi(word); err == nil && n >= int(history.Running) && n <= int(history.Suspended) {
				out = append(out, history.RuntimeStatus(n))
			}
		}
	}
	return out
}

// timeLayouts are the forms in which times are accepted, after the date and
// time are joined by "T". Those without a zone are UTC.
var timeLayouts = []string{
	"2006-01-02T15:04:05.999999999Z07:00",
	"2006-01-02T15:04:05.999999999Z0700",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04",
	"2006-01-02",
	"1/2/2006T15:04:05",
	"1/2/2006T15:04",
	"1/2/2006",
	time.RFC1123,
}

// Time returns a point in time; zero if there is none that can be read
// (HttpApiHandler.cs, TryGetDateTimeQueryParameterValue).
func (q Query) Time(name string) time.Time {
	t, _ := ParseTime(q.Text(name))
	return t
}

// ParseTime reads a point in time, which can be the zero one; ok is false if it
// cannot be read.
func ParseTime(text string) (t time.Time, ok bool) {
	text = strings.TrimSpace(text)
	// Python writes years before 1000 without zeros in front.
	if year, _, found := strings.Cut(text, "-"); found && len(year) > 0 && len(year) < 4 && isDigits(year) {
		text = strings.Repeat("0", 4-len(year)) + text
	}
	// A "+" before the zone that was not escaped has become a blank.
	if at := len(text) - len(" 00:00"); at > len("2006-01-02T") && text[at] == ' ' && isDigits(text[at+1:at+3]) && text[at+3] == ':' {
		text = text[:at] + "+" + text[at+1:]
	}
	joined := text
	if at := strings.IndexByte(text, ' '); at >= 8 && at <= 10 {
		joined = text[:at] + "T" + text[at+1:]
	}
	for _, layout := range timeLayouts {
		for _, candidate := range []string{joined, text} {
			if t, err := time.Parse(layout, candidate); err == nil {
				return t.UTC(), true
			}
		}
	}
	return time.Time{}, false
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

const (
	// defaultPageSize is the default size of a page, maxPageSize the most that a table
	// returns at once.
	defaultPageSize = 100
	maxPageSize     = 1000
)

// PageSize returns how much a page of a list has.
func (q Query) PageSize() (int, error) {
	size, given := q.Number("top")
	switch {
	case !given:
		return defaultPageSize, nil
	case size < 1:
		return 0, BadRequest("top is %d; want 1 or more.", size)
	}
	return min(size, maxPageSize), nil
}
