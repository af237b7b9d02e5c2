package durable

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
