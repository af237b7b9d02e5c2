package replay

// continueAsNew is the error that an orchestrator returns to continue as a new execution.
type continueAsNew struct {
	input *string
	how   Continuation
}

// A Continuation configures the next execution of an orchestrator that continues as new.
type Continuation struct {
	// DiscardEvents discards the external events that the orchestrator has not read.
	DiscardEvents bool
	// NewVersion is the version of the new execution; nil keeps the version.
	NewVersion *string
}

func (*continueAsNew) Error() string {
	return "durable: the orchestration continues as new; the orchestrator must return this error"
}
