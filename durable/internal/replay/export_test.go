package replay

// Remembered returns how many waits are kept for an event of the given name, and for
// the completion of f. Some of them may be over.
func (x *Execution) Remembered(name string, f *Future) (events, waiters int) {
	return len(x.events.of(name).waiting), len(f.more)
}
