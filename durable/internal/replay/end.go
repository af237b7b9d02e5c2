package replay

// continueAsNew is the error by which an orchestrator says that it wants to go
// on as a new execution.
type continueAsNew struct {
	input *string
	how   Continuation
}

// A Continuation says how an execution goes on as a new one.
type Continuation struct {
	// DiscardEvents drops the events that were not consumed.
	DiscardEvents bool
	// NewVersion is the version of the new execution; nil means the same.
	NewVersion *string
}

func (*continueAsNew) Error() string {
	return "durable: the orchestration continues as new; the orchestrator must return this error"
}
