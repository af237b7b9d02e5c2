package durable

import (
	"cmp"
	"strconv"
	"strings"
)

// A Version is the version of an orchestrator that an instance is started
// with, and keeps. Empty means none. Versions have no form; those that look
// like 1.2.3 are compared by number, see [Version.Compare].
//
// It is an option in many places: of [Orchestrator] it says which instances the
// function is for, of [NewClient] which version instances get for which none was
// chosen, and of [Start], [CallSubOrchestrator] and [ContinueAsNew] which
// version the instance gets.
type Version string

func (v Version) applyStart(o *startOptions)                       { o.version = &v }
func (v Version) applyClient(c *Client)                            { c.version = v }
func (v Version) applySubOrchestration(o *subOrchestrationOptions) { o.version = &v }
func (v Version) applyFunction(f *Function)                        { f.version = v }
func (v Version) applyContinueAsNew(o *continueAsNewOptions)       { o.version = &v }

// Compare returns -1 if v is an older version than w, 1 if it is newer and 0 if
// they are the same. An empty version is older than any other. Two versions of
// two to four numbers, such as 1.2 and 1.10.0, are compared number by number;
// one that has no third number is older than one in which that is 0. All others
// are compared as texts, without regard to case
// (DurableTask.Core/Settings/VersioningSettings.cs, CompareVersions, and .NET's
// System.Version).
func (v Version) Compare(w Version) int {
	a, b := strings.TrimSpace(string(v)), strings.TrimSpace(string(w))
	if a == "" || b == "" {
		return cmp.Compare(min(len(a), 1), min(len(b), 1))
	}
	x, xOK := parseVersion(a)
	y, yOK := parseVersion(b)
	if !xOK || !yOK {
		return cmp.Compare(strings.ToUpper(a), strings.ToUpper(b))
	}
	for i := range x {
		if c := cmp.Compare(x[i], y[i]); c != 0 {
			return c
		}
	}
	return 0
}

// key returns what versions have in common that find the same function.
func (v Version) key() Version { return Version(strings.ToUpper(strings.TrimSpace(string(v)))) }

// parseVersion reads a version of .NET's form: two to four numbers with dots
// between them. A number that is not there is -1.
func parseVersion(s string) (numbers [4]int, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > len(numbers) {
		return numbers, false
	}
	numbers = [4]int{-1, -1, -1, -1}
	for i, p := range parts {
		n, err := strconv.ParseInt(strings.TrimSpace(p), 10, 32)
		if err != nil || n < 0 {
			return numbers, false
		}
		numbers[i] = int(n)
	}
	return numbers, true
}
