package embedded

import "context"

// noInstance is an ID that no instance has.
const noInstance = "@@check"

// Check implements [provider.Checker]. The file must be in its place. If a write did not
// reach the disk, and none as large has since, there must be room for one, and another
// write, which changes nothing, must succeed.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.store.checkThere(); err != nil {
		return err
	}
	apply := func(*txn) error { return nil }
	if missing := h.unwritten.Load(); missing > 0 {
		apply = func(t *txn) error {
			if err := h.store.journal.reserve(missing); err != nil {
				return err
			}
			t.remove(instancesTable, []byte(noInstance))
			t.afterwards(func() { h.unwritten.Store(0) })
			return nil
		}
	}
	return h.writer.do(ctx, apply)
}

// IsBusy implements [provider.Checker].
func (h *Hub) IsBusy() bool { return false }
