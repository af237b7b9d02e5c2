package azurestorage

import (
	"context"
	"sync"
)

// buffer bounds how many control-queue messages are in memory, over all
// partitions (DurableTask.AzureStorage/Messaging/ControlQueue.cs,
// GetMessagesAsync; .NET looks again every second, here whoever waits is told).
type buffer struct {
	mu   sync.Mutex
	free int
	// freed is closed when room becomes free; nil unless somebody waits.
	freed chan struct{}
}

// take reserves room for up to n messages, at least one. It waits for it; 0
// means that ctx ended. full is called once if it has to wait.
func (b *buffer) take(ctx context.Context, n int, full func()) int {
	for {
		b.mu.Lock()
		if got := min(n, b.free); got > 0 && ctx.Err() == nil {
			b.free -= got
			b.mu.Unlock()
			return got
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		if full != nil {
			full()
			full = nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0
		}
	}
}

// tryTake reserves room for n messages if there is as much.
func (b *buffer) tryTake(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < n {
		return false
	}
	b.free -= n
	return true
}

// give returns room for n messages.
func (b *buffer) give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}
