package replay

// An Observer detects code that blocks. The execution calls it at each step; its methods must
// return immediately.
type Observer interface {
	// Progressed reports one step: a durable call, an event that lets coroutines run, or the
	// start or end of an encoding.
	Progressed()
	// ForeignCall reports a durable call from a goroutine that the orchestrator started. It is
	// called on that goroutine.
	ForeignCall(err error)
}
