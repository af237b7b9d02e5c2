package handler

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A query holds the parameters of a URL by their names in lower case: the
// extension does not mind their case.
type query map[string][]string

// parseQuery reads what can be read of a query string, as .NET does.
func parseQuery(raw string) query {
	q := query{}
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

// text returns the first value of a parameter, "" if it is not given.
func (q query) text(name string) string {
	if values := q[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// boolean returns a parameter that is true or false in any case, else byDefault
// (HttpApiHandler.cs, TryGetBooleanQueryParameterValue).
func (q query) boolean(name string, byDefault bool) bool {
	switch strings.ToLower(strings.TrimSpace(q.text(name))) {
	case "true":
		return true
	case "false":
		return false
	}
	return byDefault
}

// number returns a whole number; ok is false if there is none.
func (q query) number(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimSpace(q.text(name)))
	return n, err == nil
}

// seconds returns a time given in seconds, with a fraction if need be; ok is
// false if there is none. Times too long for a duration are cut.
func (q query) seconds(name string) (d time.Duration, ok bool) {
	s, err := strconv.ParseFloat(strings.TrimSpace(q.text(name)), 64)
	if err != nil || math.IsNaN(s) {
		return 0, false
	}
	const longest = math.MaxInt64 / 1e9 / 2
	return time.Duration(min(max(s, -longest), longest) * float64(time.Second)), true
}

// statuses returns the runtime statuses in a parameter that may be repeated and
// hold lists. Names count in their own case, numbers too; what is neither is
// dropped (HttpApiHandler.cs, TryGetIEnumerableQueryParameterValue).
func (q query) statuses(name string) []history.RuntimeStatus {
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

// time returns a point in time; zero if there is none that can be read
// (HttpApiHandler.cs, TryGetDateTimeQueryParameterValue).
func (q query) time(name string) time.Time {
	t, _ := parseTime(q.text(name))
	return t
}

// parseTime reads a point in time, which can be the zero one; ok is false if it
// cannot be read.
func parseTime(text string) (t time.Time, ok bool) {
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
	// defaultPageSize is how many instances a page of a list has, and
	// maxPageSize how many a table hands out at once.
	defaultPageSize = 100
	maxPageSize     = 1000
)

// pageSize returns how much a page of a list has.
func (q query) pageSize() (int, error) {
	size, given := q.number("top")
	switch {
	case !given:
		return defaultPageSize, nil
	case size < 1:
		return 0, badRequest("top is %d; want 1 or more.", size)
	}
	return min(size, maxPageSize), nil
}
