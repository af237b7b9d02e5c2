package runs

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// Blobs returns the files in a container whose blob names start with prefix. [Base.Names] and
// errors omit the prefix.
func Blobs(c *store.Container, prefix string) Files { return blobs{c, prefix} }

type blobs struct {
	container *store.Container
	prefix    string
}

// Create implements [Files]. If a response is lost, the retry finds the blob and succeeds.
func (b blobs) Create(ctx context.Context, name string, content []byte) error {
	return b.container.CreateBlob(ctx, b.prefix+name, content)
}

// ReadAt implements [Files].
func (b blobs) ReadAt(ctx context.Context, name string, offset int64, p []byte) error {
	err := b.container.ReadAt(ctx, b.prefix+name, offset, p)
	if store.IsBlobGone(err) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Remove implements [Files].
func (b blobs) Remove(ctx context.Context, name string) error {
	return b.container.Remove(ctx, b.prefix+name)
}
