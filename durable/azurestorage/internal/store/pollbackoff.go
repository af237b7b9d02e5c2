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

// PollBackoff calculates the pauses between polls of an empty queue. The pauses start with
// MinPollingInterval and grow exponentially, by a random factor, up to Max
// (DurableTask.AzureStorage/BackoffPollingHelper.cs, GetNextDelay and Reset). After a poll with
// messages they start again. The zero value with Max set is ready to use; its first pause is zero.
type PollBackoff struct {
	Max      time.Duration
	current  time.Duration
	exponent int
	outage   time.Duration // upper limit of the last pause after a failed poll; 0 after a successful one
}

// Wait waits after a poll of what until the next poll is due, or until wake reports that this process
// has enqueued a message. found is the number of messages of the poll. After failed polls (err is not
// nil) the pauses grow until a poll succeeds.
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

// next returns the pause after another empty poll. random is in [0, 1).
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

// reset restarts the backoff at the minimum, after messages were received or this process has enqueued
// one.
func (b *PollBackoff) reset() {
	b.current = min(MinPollingInterval, b.Max)
	b.exponent = 1
}

// The pauses between polls while the storage account is unreachable.
const (
	FirstOutageDelay = 250 * time.Millisecond
	MaxOutageDelay   = 10 * time.Second
)
