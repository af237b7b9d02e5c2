package azurestorage

import (
	"context"
	"sync"
	"time"
)

// A message for a queue that this process serves is put into the queue hidden,
// as if it had been received already, and handed over in memory. That saves the
// receive and the time until the next poll.
//
//  1. It is handed over only when that which sent it counts: a checkpoint's
//     messages after its history was written, a start after its row.
//  2. While it waits for that and while it is in flight, its visibility timeout is
//     renewed, like that of a received message. If the process dies, it becomes
//     visible within the time of a lease.
//  3. If the checkpoint does not count, it is retracted. If it cannot be handed over
//     any more, because the partition was lost or the worker stops, it is released.
//  4. It never overtakes what is visible in its queue: messages are claimed only
//     while the last poll of the queue has received all there was.

// backlog tracks whether a queue may hold visible messages that this process has not
// received.
type backlog struct {
	mu   sync.Mutex // protects the following
	adds int        // times that there was reason to believe so
	seen int        // those before the last look that left nothing
}

// add notes that there may be more messages than were received.
func (b *backlog) add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adds++
}

// before returns what to pass to looked after a poll that begins now.
func (b *backlog) before() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.adds
}

// looked notes that a poll asked for a number of messages, wanted, and got some.
func (b *backlog) looked(before, got, wanted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if got < wanted {
		b.seen = before
	} else {
		b.adds++
	}
}

// isEmpty reports whether the last poll received all there was.
func (b *backlog) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen == b.adds
}

// buffer bounds how many control-queue messages are in memory, over all
// partitions (DurableTask.AzureStorage/Messaging/ControlQueue.cs,
// GetMessagesAsync; .NET looks again every second, here the waiter is woken).
type buffer struct {
	size int        // largest number of messages in memory
	most func() int // number of messages from which no more are received

	mu   sync.Mutex // protects the following
	used int
	// freed is closed when room becomes free; nil unless there is a waiter.
	freed chan struct{}
}

func newBuffer(size int, most func() int) buffer { return buffer{size: size, most: most} }

// limitInterval is the time after which a waiting receiver looks again whether the limit for
// received messages has risen.
const limitInterval = time.Second

// take waits until there is room for received messages, and reserves it for up to n. It
// returns 0 if ctx ended. It calls full once if it waits because the buffer is full.
func (b *buffer) take(ctx context.Context, n int, full func()) int {
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

// awaitChange waits for a change or until ctx ends. If received messages are limited, it waits
// for limitInterval at most.
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

// tryTake reserves room for n messages if there is that much.
func (b *buffer) tryTake(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size-b.used < n {
		return false
	}
	b.used += n
	return true
}

// inUse returns the number of messages for which room is taken.
func (b *buffer) inUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// give returns room for n messages.
func (b *buffer) give(n int) {
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
