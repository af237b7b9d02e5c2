package embedded

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// FlushAt makes layers go into the database when they have reached a size, so
// that tests see it happen.
func (h *Hub) FlushAt(size int64) {
	done := make(chan struct{})
	// The field is the writer's.
	_ = h.writer.Submit(logstore.NewOp(func(*txn) error {
		h.store.Limits.Flush = size
		close(done)
		return nil
	}))
	<-done
}

// Damage makes the record of an instance one that cannot be read.
func (h *Hub) Damage(ctx context.Context, id string) error {
	return h.writer.Do(ctx, func(t *txn) error {
		t.Put(instancesTable, []byte(id), []byte{255})
		return nil
	})
}
