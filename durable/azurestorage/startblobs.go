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
	// A client's start deletes at most blobsPerStart blobs of earlier starts, for at most
	// removeSomeTimeout.
	blobsPerStart     = 4
	removeSomeTimeout = time.Second
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

// take removes a blob that is due from b, and returns its name. The name is empty if no blob is due.
func (b *startBlobs) take(now time.Time) (name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.blobs) == 0 || now.Before(b.blobs[0].due) {
		return ""
	}
	name = b.blobs[0].name
	b.blobs = b.blobs[1:]
	return name
}

// remove deletes at most the given number of due blobs. It stops at the first error. The blob of the
// error is due again after startBlobAge.
func (b *startBlobs) remove(ctx context.Context, s *outbound.Sender, most int) {
	for ; most > 0; most-- {
		name := b.take(time.Now())
		if name == "" {
			return
		}
		if err := s.Blobs.Remove(ctx, name); err != nil {
			b.remember(name)
			if ctx.Err() == nil {
				s.Log.Warn("cannot delete blob of a message that was not sent", "blob", name, "error", err)
			}
			return
		}
	}
}

// removeSome deletes a few due blobs within a short time, because a client's call waits for it.
func (b *startBlobs) removeSome(ctx context.Context, s *outbound.Sender) {
	ctx, cancel := context.WithTimeout(ctx, removeSomeTimeout)
	defer cancel()
	b.remove(ctx, s, blobsPerStart)
}
