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

// Observe sets the observer. The caller sets it before the first episode.
func (x *Execution) Observe(o Observer) { x.observer = o }

// Progressed reports a step to the observer, if there is one.
func (x *Execution) Progressed() {
	if x.observer != nil {
		x.observer.Progressed()
	}
}
