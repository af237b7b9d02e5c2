package embedded

import "context"

// FlushAt makes layers go into the database when they have reached a size, so
// that tests see it happen.
func (h *Hub) FlushAt(size int64) {
	done := make(chan struct{})
	// The field is the writer's.
	_ = h.writer.submit(&op{result: make(chan error, 1), apply: func(*txn) error {
		h.store.flushAt = size
		close(done)
		return nil
	}})
	<-done
}

// Damage makes the record of an instance one that cannot be read.
func (h *Hub) Damage(ctx context.Context, id string) error {
	return h.writer.do(ctx, func(t *txn) error {
		t.put(instancesTable, []byte(id), []byte{255})
		return nil
	})
}
