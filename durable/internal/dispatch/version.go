package dispatch

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// versions decides about instances of other versions.
type versions struct {
	refuses func(version string) error // nil: none
	fails   bool                       // refused instances fail; else they are abandoned
}

// A mismatch says that the worker does not take the version of an instance.
type mismatch struct{ cause error }

// check returns an error if the instance that start began is held back, and a mismatch if it
// fails.
func (v versions) check(start *history.ExecutionStarted) (*mismatch, error) {
	if v.refuses == nil {
		return nil, nil
	}
	cause := v.refuses(start.Version)
	switch {
	case cause == nil:
		return nil, nil
	case v.fails:
		return &mismatch{cause}, nil
	}
	return nil, &unknownFunctionError{kind: "orchestrator", name: start.Name, version: start.Version, refusal: cause.Error()}
}

// Failure returns the failure that goes into histories (DurableTask.Core/
// TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync).
func (m *mismatch) Failure() *history.FailureDetails {
	const kind = "VersionMismatch"
	return &history.FailureDetails{
		ErrorType: kind, ErrorMessage: "Orchestration version did not comply with Worker Versioning", IsNonRetriable: true,
		InnerFailure: &history.FailureDetails{ErrorType: kind, ErrorMessage: m.cause.Error(), IsNonRetriable: true},
	}
}
