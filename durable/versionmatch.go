package durable

// A VersionMatchStrategy says which instances a worker takes, by their version
// and its own (DurableTask.Core/Settings/VersioningSettings.cs,
// VersionMatchStrategy). A worker without a version takes all.
type VersionMatchStrategy int

const (
	// MatchCurrentOrOlder takes instances whose version is not newer than the
	// worker's, by [Version.Compare]. It is the default, as in the extension.
	MatchCurrentOrOlder VersionMatchStrategy = iota
	// MatchStrict takes instances whose version is the worker's.
	MatchStrict
	// MatchNone takes all instances.
	MatchNone
)

var matchNames = map[VersionMatchStrategy]string{MatchCurrentOrOlder: "CurrentOrOlder", MatchStrict: "Strict", MatchNone: "None"}

// String returns the name that host.json has for s.
func (s VersionMatchStrategy) String() string { return matchNames[s] }

// A VersionFailureStrategy says what becomes of an instance that a worker does
// not take because of its version (VersioningSettings.cs,
// VersionFailureStrategy).
type VersionFailureStrategy int

const (
	// RejectMismatch hands the instance back: another worker may take it. It is
	// the default.
	RejectMismatch VersionFailureStrategy = iota
	// FailMismatch fails the instance.
	FailMismatch
)

var failureNames = map[VersionFailureStrategy]string{RejectMismatch: "Reject", FailMismatch: "Fail"}

// String returns the name that host.json has for s.
func (s VersionFailureStrategy) String() string { return failureNames[s] }
