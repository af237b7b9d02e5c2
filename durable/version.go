package durable

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is the version of an orchestrator. An instance keeps the version that it is
// started with. An empty Version means none. Versions can have any form;
// [Version.Compare] compares versions such as 1.2.3 by number.
//
// Applies to:
//
//   - [Orchestrator]: the version of the instances that the function runs.
//   - [NewClient]: the default version of new instances.
//   - [Start], [StartFrom], [Client.StartByName], [Client.Restart],
//     [CallSubOrchestrator] and [ContinueAsNew]: the version of the instance.
type Version string

func (v Version) applyStart(o *startOptions)                       { o.version = &v }
func (v Version) applyClient(c *Client)                            { c.version = v }
func (v Version) applySubOrchestration(o *subOrchestrationOptions) { o.version = &v }
func (v Version) applyOrchestrator(f *Registration)                { f.version = v }
func (v Version) applyContinueAsNew(o *continueAsNewOptions)       { o.version = &v }

// Compare returns -1 if v is older than w, 1 if it is newer and 0 if they are equal. An
// empty version is older than any other. Versions of two to four numbers, such as 1.2
// and 1.10.0, are compared number by number; a missing number is older than 0. Other
// versions are compared as case-insensitive text
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

// key returns v in the normalized form in which functions are looked up.
func (v Version) key() Version { return Version(strings.ToUpper(strings.TrimSpace(string(v)))) }

// parseVersion parses a version in .NET's format: two to four numbers, separated by
// dots. A missing number is -1.
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

// VersionMatchStrategy selects the instances that a worker accepts, by their version
// and its own (DurableTask.Core/Settings/VersioningSettings.cs, VersionMatchStrategy).
// A worker without a version accepts all instances.
type VersionMatchStrategy int

const (
	// MatchCurrentOrOlder accepts instances whose version is not newer than the
	// worker's, by [Version.Compare]. It is the default, as in the extension.
	MatchCurrentOrOlder VersionMatchStrategy = iota
	// MatchStrict accepts instances whose version equals the worker's.
	MatchStrict
	// MatchNone accepts all instances.
	MatchNone
)

var matchNames = map[VersionMatchStrategy]string{MatchCurrentOrOlder: "CurrentOrOlder", MatchStrict: "Strict", MatchNone: "None"}

// String returns the name of s in host.json.
func (s VersionMatchStrategy) String() string { return matchNames[s] }

// VersionFailureStrategy defines what happens to an instance that a worker does not
// accept because of its version (VersioningSettings.cs, VersionFailureStrategy).
type VersionFailureStrategy int

const (
	// RejectMismatch releases the instance for other workers. It is the default.
	RejectMismatch VersionFailureStrategy = iota
	// FailMismatch fails the instance.
	FailMismatch
)

var failureNames = map[VersionFailureStrategy]string{RejectMismatch: "Reject", FailMismatch: "Fail"}

// String returns the name of s in host.json.
func (s VersionFailureStrategy) String() string { return failureNames[s] }
