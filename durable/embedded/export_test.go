package embedded

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// FlushAt sets the size in bytes at which a layer is written to the database, so that tests can
// observe it.
func (h *Hub) FlushAt(size int64) {
	// The writer owns the field.
	err := h.Update(context.Background(), func(*logstore.Txn) error {
		h.store.Limits.FlushSize = size
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// Damage makes the record of an instance undecodable.
func (h *Hub) Damage(ctx context.Context, id string) error {
	const instances = 0 // index in partition.Tables
	return h.Update(ctx, func(t *logstore.Txn) error {
		t.Put(instances, []byte(id), []byte{255})
		return nil
	})
}
