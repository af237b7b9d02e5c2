package replay

// An Observer watches an execution for code that blocks. The execution calls it at each
// step, so its methods return at once.
type Observer interface {
	// Progressed reports one step: a durable call, an event that lets coroutines run,
	// or the begin or end of an encoding.
	Progressed()
	// ForeignCall reports a durable call from a goroutine that the orchestrator started.
	// That goroutine calls it.
	ForeignCall(err error)
}
