package replay

// StoredWaits returns the number of waits that are stored for events of the given name, and for
// the completion of f. Ended waits that were not removed yet count.
func (x *Execution) StoredWaits(name string, f *Future) (events, waiters int) {
	return len(x.events.byName(name).waiting), len(f.more)
}
