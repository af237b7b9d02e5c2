package crashes

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Limit is at how many crashes work is set aside.
const Limit = 2

// functionLimit is at how many crashes all work of a function is set aside, if each
// came within inARow of the one before. Crashes of work that is set aside itself do not
// count. This ends the loop of a goroutine that panics after its work has got to its
// end, and so begins from nothing again and again.
const (
	functionLimit = 5
	inARow        = 15 * time.Minute
)

// maxCounts is of how much work and how many functions crashes are remembered.
const maxCounts = 1000

// A Count is how often something has crashed the process, and when it last did.
type Count struct {
	Crashes int       `json:"crashes"`
	Last    time.Time `json:"last"`
	// Aside reports whether the work came again after Limit crashes, and was set aside. Only
	// then did it cause those crashes: the process may also have ended just before it could
	// note the work's end.
	Aside bool `json:"aside,omitempty"`
}

// Counts has those of work since it last got to its end, and of functions, which are
// what a work's name begins with.
type Counts map[string]Count

// Work names something that is worked on: an activity by its orchestration's execution
// and its number there, which are empty of others.
func Work(kind, name, executionID string, number int, instanceID string) string {
	return fmt.Sprintf("%s %q %d %q %q", kind, name, number, executionID, instanceID)
}

// functionOf returns the function of work, or itself.
func functionOf(work string) string {
	kind, rest, _ := strings.Cut(work, " ")
	name, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return work
	}
	return kind + " " + name
}

// crashed counts a crash.
func (c Counts) crashed(work string, at time.Time) {
	if len(c) >= maxCounts {
		clear(c)
	}
	one, function := c[work], functionOf(work)
	one.Crashes, one.Last = one.Crashes+1, at
	c[work] = one
	all := c[function]
	if at.Sub(all.Last) > inARow {
		all.Crashes = 0
	}
	c[function] = Count{Crashes: all.Crashes + 1, Last: at}
}

// Holds reports whether work, or all of a function, is set aside.
func (c Counts) Holds(work string) bool {
	return work != functionOf(work) && c[work].Crashes >= Limit || c[functionOf(work)].Crashes >= functionLimit
}

// setAside takes the crashes of work that has come again after Limit of them from its
// function's, and reports whether it did so now.
func (c Counts) setAside(work string) bool {
	one, function := c[work], functionOf(work)
	if work == function || one.Crashes < Limit || one.Aside {
		return false
	}
	one.Aside = true
	c[work] = one
	all := c[function]
	if all.Crashes -= Limit; all.Crashes > 0 {
		c[function] = all
	} else {
		delete(c, function)
	}
	return true
}

// done forgets the crashes of work, which has got to its end.
func (c Counts) done(work string) { delete(c, work) }

// resume forgets the crashes of all work of an instance, and of all functions.
func (c Counts) resume(instanceID string) {
	suffix := fmt.Sprintf(" %q", instanceID)
	maps.DeleteFunc(c, func(work string, _ Count) bool { return strings.HasSuffix(work, suffix) || functionOf(work) == work })
}
