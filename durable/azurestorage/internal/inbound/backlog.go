package inbound

import "sync"

// backlog tracks whether a queue may hold visible messages that this process has not received.
type backlog struct {
	mu      sync.Mutex // protects the following
	hints   int        // number of times that a message may have become visible
	cleared int        // value of hints before the last poll that emptied the queue
}

// hint records that the queue may hold messages.
func (b *backlog) hint() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hints++
}

// snapshot returns the argument for polled. Call it before the poll.
func (b *backlog) snapshot() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hints
}

// polled records the result of a poll: it asked for wanted messages and received got.
func (b *backlog) polled(before, got, wanted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if got < wanted {
		b.cleared = before
	} else {
		b.hints++
	}
}

// isEmpty reports whether the last poll emptied the queue, as far as this process knows.
func (b *backlog) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cleared == b.hints
}
