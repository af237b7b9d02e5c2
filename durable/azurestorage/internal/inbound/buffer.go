package inbound

import (
	"context"
	"sync"
	"time"
)

// buffer limits the number of control-queue messages in memory, over all partitions
// (DurableTask.AzureStorage/Messaging/ControlQueue.cs, GetMessagesAsync). .NET checks the limit
// once per second; here a waiter is notified.
type buffer struct {
	size int        // maximum number of messages in memory
	most func() int // current limit for receiving messages

	mu   sync.Mutex // protects the following
	used int
	// freed is closed when a slot becomes free. It is nil unless there is a waiter.
	freed chan struct{}
}

func newBuffer(size int, most func() int) buffer { return buffer{size: size, most: most} }

// limitInterval is the time between two checks of a waiting receiver whether its current limit has
// risen.
const limitInterval = time.Second

// reserve waits for free slots and reserves up to n of them for received messages. It returns 0 if
// ctx ends. If it has to wait because the buffer is full, it calls full once.
func (b *buffer) reserve(ctx context.Context, n int, full func()) int {
	for {
		b.mu.Lock()
		if got := min(n, b.size-b.used, b.most()-b.used); got > 0 && ctx.Err() == nil {
			b.used += got
			b.mu.Unlock()
			return got
		}
		isFull := b.used >= b.size
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		if isFull && full != nil {
			full()
			full = nil
		}
		if awaitChange(ctx, freed, !isFull); ctx.Err() != nil {
			return 0
		}
	}
}

// awaitChange waits until changed is closed or ctx ends. If limited is true, it waits for at most
// limitInterval.
func awaitChange(ctx context.Context, changed <-chan struct{}, limited bool) {
	var look <-chan time.Time
	if limited {
		look = time.After(limitInterval)
	}
	select {
	case <-changed:
	case <-look:
	case <-ctx.Done():
	}
}

// tryReserve reserves n slots if they are free.
func (b *buffer) tryReserve(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size-b.used < n {
		return false
	}
	b.used += n
	return true
}

// inUse returns the number of reserved slots.
func (b *buffer) inUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// release frees n slots.
func (b *buffer) release(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}
