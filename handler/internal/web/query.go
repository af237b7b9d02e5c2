package web

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Query maps the names of query parameters in lower case to their values. The extension ignores the
// case of names.
type Query map[string][]string

// ParseQuery parses a query string. Like .NET it skips what it cannot parse.
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

// Text returns the first value of a parameter, or "".
func (q Query) Text(name string) string {
	if values := q[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Boolean returns a parameter that is true or false in any case, otherwise byDefault
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

// Number returns a whole number. It returns ok = false if the parameter is not one.
func (q Query) Number(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimSpace(q.Text(name)))
	return n, err == nil
}

// Seconds returns a duration in seconds, which may have a fraction. It returns ok = false if the
// parameter is not a number. It limits durations that are too long.
func (q Query) Seconds(name string) (d time.Duration, ok bool) {
	s, err := strconv.ParseFloat(strings.TrimSpace(q.Text(name)), 64)
	if err != nil || math.IsNaN(s) {
		return 0, false
	}
	const longest = math.MaxInt64 / 1e9 / 2
	return time.Duration(min(max(s, -longest), longest) * float64(time.Second)), true
}

// Statuses returns the runtime statuses in a parameter that may be repeated and may contain lists. It
// accepts names, which are case-sensitive, and numbers, and ignores other values (HttpApiHandler.cs,
// TryGetIEnumerableQueryParameterValue).
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

// timeLayouts lists the accepted formats of times, with "T" between date and time of day, except before
// "PM". Times without a zone are in UTC.
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
	"1/2/2006 3:04:05 PM",
	"2006/1/2T15:04:05",
	"2006/1/2",
	time.RFC1123,
}

// Time returns a point in time, or the zero time if the parameter cannot be parsed (HttpApiHandler.cs,
// TryGetDateTimeQueryParameterValue).
func (q Query) Time(name string) time.Time {
	t, _ := ParseTime(q.Text(name))
	return t
}

// ParseTime parses a point in time, which may be the zero time. It returns ok = false if text is not
// valid.
func ParseTime(text string) (t time.Time, ok bool) {
	// .NET writes a narrow no-break space before "AM" and "PM".
	text = strings.ReplaceAll(strings.TrimSpace(text), "\u202f", " ")
	// Python writes years before 1000 without leading zeros.
	if year, _, found := strings.Cut(text, "-"); found && len(year) > 0 && len(year) < 4 && isDigits(year) {
		text = strings.Repeat("0", 4-len(year)) + text
	}
	// An unescaped "+" before the zone has been decoded as a space.
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
	// defaultPageSize is the default size of a page. maxPageSize is the largest number of rows that a
	// table returns at once.
	defaultPageSize = 100
	maxPageSize     = 1000
)

// PageSize returns the size of a page of a list.
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
