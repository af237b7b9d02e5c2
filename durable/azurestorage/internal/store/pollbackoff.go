package store

import (
	"context"
	"math"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// MinPollingInterval is the first pause after a queue was found empty.
const MinPollingInterval = 50 * time.Millisecond

// PollBackoff decides how long to wait before an empty queue is looked at
// again: not at all, then the minimum, then longer and longer by a random
// exponent, up to a maximum (DurableTask.AzureStorage/BackoffPollingHelper.cs,
// GetNextDelay and Reset). The zero value, with max set, is how polling begins.
type PollBackoff struct {
	Max      time.Duration
	current  time.Duration
	exponent int
	outage   time.Duration // how long the last pause after a failed look was at most; 0 after one that was answered
}

// Wait waits after a poll of what that found so many messages, until the next poll is due
// or a nudge says that this process sent a message. After failed polls it waits longer and
// longer, until one succeeds.
func (b *PollBackoff) Wait(ctx context.Context, wake Nudge, what string, found int, err error) {
	if err != nil {
		b.outage = min(max(2*b.outage, FirstOutageDelay), MaxOutageDelay)
		pause.For(ctx, Jitter(ctx, "outage of "+what, b.outage))
		return
	}
	b.outage = 0
	if found > 0 || wake.Pause(ctx, b.next(chance.Float64(ctx, "poll "+what))) {
		b.reset()
	}
}

// next returns how long to wait after another empty answer. random is in
// [0, 1).
func (b *PollBackoff) next(random float64) time.Duration {
	wait := b.current
	if b.current < b.Max {
		d := MinPollingInterval
		if b.exponent > 0 {
			factor := 0.8 + 0.4*random
			d += time.Duration(factor * math.Exp2(float64(b.exponent-1)) * float64(MinPollingInterval))
		}
		if d < b.Max {
			b.exponent++
			b.current = d
		} else {
			b.current = b.Max
		}
	}
	return wait
}

// reset makes the next wait the minimum: something was received, or this
// process sent something to the queue.
func (b *PollBackoff) reset() {
	b.current = min(MinPollingInterval, b.Max)
	b.exponent = 1
}

// The pauses between attempts while the storage account is down.
const (
	FirstOutageDelay = 250 * time.Millisecond
	MaxOutageDelay   = 10 * time.Second
)
