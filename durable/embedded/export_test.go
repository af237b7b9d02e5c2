package embedded

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// FlushAt makes layers go into the database when they have reached a size, so
// that tests see it happen.
func (h *Hub) FlushAt(size int64) {
	// The field is the writer's.
	err := h.Update(context.Background(), func(*logstore.Txn) error {
		h.store.Limits.Flush = size
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// Damage makes the record of an instance one that cannot be read.
func (h *Hub) Damage(ctx context.Context, id string) error {
	const instances = 0 // of partition.Tables
	return h.Update(ctx, func(t *logstore.Txn) error {
		t.Put(instances, []byte(id), []byte{255})
		return nil
	})
}
