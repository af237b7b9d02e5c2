package embedded

import "context"

// noInstance is an ID that no instance has.
const noInstance = "@@check"

// Check implements [provider.Checker]. The file must be in its place. If a write did not
// reach the disk, and none as large has since, there must be room for one, and another
// write, which changes nothing, must succeed.
func (h *Hub) Check(ctx context.Context) error {
	if err := h.file.CheckPlace(); err != nil {
		return err
	}
	apply := func(*txn) error { return nil }
	if h.store.Unwritten() > 0 {
		apply = func(t *txn) error {
			if err := h.store.Reserve(); err != nil {
				return err
			}
			t.Remove(instancesTable, []byte(noInstance))
			t.Then(h.store.SetWritten)
			return nil
		}
	}
	return h.writer.Do(ctx, apply)
}

// IsBusy implements [provider.Checker].
func (h *Hub) IsBusy() bool { return false }
