package dispatch

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// versions decides about the versions of instances.
type versions struct {
	rejects func(version string) error // nil accepts all versions
	fails   bool                       // rejected instances fail instead of being held back
}

// A mismatch reports that the worker does not accept the version of an instance.
type mismatch struct{ cause error }

// check returns an error if the instance with the given start is held back, and a mismatch if
// it fails.
func (v versions) check(start *history.ExecutionStarted) (*mismatch, error) {
	if v.rejects == nil {
		return nil, nil
	}
	cause := v.rejects(start.Version)
	switch {
	case cause == nil:
		return nil, nil
	case v.fails:
		return &mismatch{cause}, nil
	}
	return nil, &unknownFunctionError{kind: "orchestrator", name: start.Name, version: start.Version, refusal: cause.Error()}
}

// Failure returns the failure that is stored in histories
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync).
func (m *mismatch) Failure() *history.FailureDetails {
	const kind = "VersionMismatch"
	return &history.FailureDetails{
		ErrorType: kind, ErrorMessage: "Orchestration version did not comply with Worker Versioning", IsNonRetriable: true,
		InnerFailure: &history.FailureDetails{ErrorType: kind, ErrorMessage: m.cause.Error(), IsNonRetriable: true},
	}
}
