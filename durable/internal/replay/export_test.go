package replay

// Remembered returns the number of waits that are stored for events of the given name, and for
// the completion of f. Ended waits that were not removed yet count.
func (x *Execution) Remembered(name string, f *Future) (events, waiters int) {
	return len(x.events.of(name).waiting), len(f.more)
}
