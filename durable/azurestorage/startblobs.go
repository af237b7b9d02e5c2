package azurestorage

import (
	"context"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
)

// startBlobs remembers the blobs of refused starts whose message may be in a queue. No row names
// them, so no purge deletes them. This process deletes them after a worker has discarded the
// message.
type startBlobs struct {
	mu    sync.Mutex // protects blobs
	blobs []startBlob
}

type startBlob struct {
	name string
	due  time.Time // when to delete it
}

const (
	// startBlobAge is the time until the deletion of a remembered blob. A worker discards a
	// start message without a row after [disposition.StartAge] or soon after that.
	startBlobAge = time.Hour
	// maxStartBlobs is the number of remembered blobs. The oldest are forgotten.
	maxStartBlobs = 1000
)

// remember adds a blob. It ignores an empty name.
func (b *startBlobs) remember(name string) {
	if name == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.blobs) == maxStartBlobs {
		b.blobs = b.blobs[1:]
	}
	b.blobs = append(b.blobs, startBlob{name, time.Now().Add(startBlobAge)})
}

// take removes the names of the blobs to delete now from b, and returns them.
func (b *startBlobs) take(now time.Time) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.blobs) > 0 && !now.Before(b.blobs[0].due) {
		names = append(names, b.blobs[0].name)
		b.blobs = b.blobs[1:]
	}
	return names
}

// remove deletes the blobs that are old enough.
func (b *startBlobs) remove(ctx context.Context, s *outbound.Sender) {
	for _, name := range b.take(time.Now()) {
		if !s.DeleteBlob(ctx, name) {
			b.remember(name)
		}
	}
}
