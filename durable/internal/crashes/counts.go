package crashes

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Limit is the number of crashes after which work is set aside.
const Limit = 2

// functionLimit is the number of crashes after which all work of a function is set aside. Only
// crashes within crashWindow of the previous one count, and none of work that is set aside itself.
//
// This ends a crash loop that Limit cannot: a goroutine that panics after its work has ended.
// The end resets the work's count each time.
const (
	functionLimit = 5
	crashWindow   = 15 * time.Minute
)

// maxCounts is the maximum number of work items and functions with a crash count.
const maxCounts = 1000

// Count is the crash count of work or of a function.
type Count struct {
	Crashes int       `json:"crashes"`
	Last    time.Time `json:"last"`
	// IsSetAside means that the work was delivered again after Limit crashes, and was set aside.
	// Only then did it cause these crashes. Otherwise the process may have ended right before
	// it recorded the end of the work.
	IsSetAside bool `json:"aside,omitempty"`
}

// Counts holds the crash counts of work since its last end, by its name, and of functions. The
// name of work starts with the name of its function.
type Counts map[string]Count

// WorkName returns the name of work. For an activity, executionID and number identify it in its
// orchestration; for other work they are empty.
func WorkName(kind, name, executionID string, number int, instanceID string) string {
	b := append(make([]byte, 0, 160), kind...)
	b = strconv.AppendQuote(append(b, ' '), name)
	b = strconv.AppendInt(append(b, ' '), int64(number), 10)
	b = strconv.AppendQuote(append(b, ' '), executionID)
	return string(strconv.AppendQuote(append(b, ' '), instanceID))
}

// functionOf returns the function of work, or the argument if that is a function.
func functionOf(work string) string {
	kind, rest, _ := strings.Cut(work, " ")
	name, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return work
	}
	return kind + " " + name
}

// crashed counts a crash of work and of its function.
func (c Counts) crashed(work string, at time.Time) {
	if len(c) >= maxCounts {
		clear(c)
	}
	one, function := c[work], functionOf(work)
	one.Crashes, one.Last = one.Crashes+1, at
	c[work] = one
	all := c[function]
	if at.Sub(all.Last) > crashWindow {
		all.Crashes = 0
	}
	c[function] = Count{Crashes: all.Crashes + 1, Last: at}
}

// IsSetAside reports whether work is set aside, by its own count or by its function's.
func (c Counts) IsSetAside(work string) bool {
	return work != functionOf(work) && c[work].Crashes >= Limit || c[functionOf(work)].Crashes >= functionLimit
}

// setAside sets work aside that was delivered again after Limit crashes, and subtracts these
// crashes from its function's count. It returns false if the work is not over the limit or set
// aside already.
func (c Counts) setAside(work string) bool {
	one, function := c[work], functionOf(work)
	if work == function || one.Crashes < Limit || one.IsSetAside {
		return false
	}
	one.IsSetAside = true
	c[work] = one
	all := c[function]
	if all.Crashes -= Limit; all.Crashes > 0 {
		c[function] = all
	} else {
		delete(c, function)
	}
	return true
}

// done removes the count of work that has ended.
func (c Counts) done(work string) { delete(c, work) }

// resume removes the counts of all work of an instance and of all functions.
func (c Counts) resume(instanceID string) {
	suffix := fmt.Sprintf(" %q", instanceID)
	maps.DeleteFunc(c, func(work string, _ Count) bool { return strings.HasSuffix(work, suffix) || functionOf(work) == work })
}
