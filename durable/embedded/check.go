package embedded

import "context"

// noInstance is an ID that no instance has.
const noInstance = "@@check"

// Check implements [provider.Checker]. The file must be in its place. If the last
// write did not reach the disk it tries another one, which changes nothing.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.store.checkThere(); err != nil {
		return err
	}
	apply := func(*txn) error { return nil }
	if h.failing.Load() {
		apply = func(t *txn) error {
			t.remove(instancesTable, []byte(noInstance))
			return nil
		}
	}
	return h.writer.do(ctx, apply)
}

// IsBusy implements [provider.Checker].
func (h *Hub) IsBusy() bool { return false }
