package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Source: DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync.
func TestAbandonDelay_DoublesUpToTenMinutes(t *testing.T) {
	for count, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 9: 512 * time.Second,
		10: 10 * time.Minute, 1 << 40: 10 * time.Minute,
	} {
		if got := abandonDelay(count); got != want {
			t.Errorf("abandonDelay(%d) = %v, want %v", count, got, want)
		}
	}
}

// Source: DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay, but limited to
// the maximum of the service.
func TestVisibilityDelay(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		event history.Event
		want  time.Duration
		to    string
	}{
		"a timer":             {&history.TimerFired{FireAt: now.Add(90*time.Second + 999*time.Millisecond)}, 90 * time.Second, ""},
		"a timer in the past": {&history.TimerFired{FireAt: now.Add(-time.Second)}, 0, ""},
		"a timer in ten days": {&history.TimerFired{FireAt: now.Add(240 * time.Hour)}, 168 * time.Hour, ""},
		"a start":             {&history.ExecutionStarted{}, 0, ""},
		"a scheduled start":   {&history.ExecutionStarted{ScheduledStart: now.Add(time.Minute)}, time.Minute, ""},
		"anything else":       {event: &history.EventRaised{}},
		"a signal for an entity, with its time": {
			event: &history.EventRaised{Name: "op@2026-11-20T19:00:00.0000000Z"}, to: "@counter@a", want: time.Hour,
		},
		"an event of the same name for an orchestration": {event: &history.EventRaised{Name: "op@2026-11-20T19:00:00.0000000Z"}, to: "a"},
	} {
		if got := visibilityDelay(&provider.TaskMessage{Event: tt.event, Target: history.OrchestrationInstance{InstanceID: tt.to}}, now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestStorageErrors_ShowWhetherARetryIsSafe(t *testing.T) {
	answer := func(status int, code string) error {
		return fmt.Errorf("send: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: code})
	}
	for name, tt := range map[string]struct {
		err                   error
		transient, notApplied bool
	}{
		"an invalid request":    {answer(400, "InvalidInput"), false, true},
		"a conflict":            {answer(409, "EntityAlreadyExists"), false, true},
		"a queue being deleted": {answer(409, "QueueBeingDeleted"), true, false},
		"busy":                  {answer(503, "ServerBusy"), true, false},
		"an internal error":     {answer(500, "InternalError"), true, false},
		"too many requests":     {answer(429, ""), true, false},
		"a refused connection":  {&net.OpError{Op: "dial", Err: errors.New("refused")}, true, true},
		"a broken connection":   {&net.OpError{Op: "read", Err: errors.New("reset")}, true, false},
		"a deadline":            {context.DeadlineExceeded, true, false},
		"a canceled context":    {context.Canceled, false, false},
		"it was never sent":     {fmt.Errorf("%w: too large", store.ErrNeverSent), false, true},
		"a refused transaction": {&store.TransactionError{Status: 412}, false, true},
		"an unavailable one":    {&store.TransactionError{Status: 503}, true, false},
	} {
		if store.IsTransient(tt.err) != tt.transient || store.WasNotApplied(tt.err) != tt.notApplied {
			t.Errorf("%s: transient %v, not applied %v; want %v, %v", name, store.IsTransient(tt.err), store.WasNotApplied(tt.err), tt.transient, tt.notApplied)
		}
	}
	if !store.IsMessageGone(answer(404, store.CodeMessageNotFound)) || !store.IsMessageGone(answer(400, store.CodePopReceiptMismatch)) || store.IsMessageGone(answer(503, "ServerBusy")) {
		t.Error("IsMessageGone is wrong")
	}
}

func TestRetry_LimitsAndReportsItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		err := store.Retry(t.Context(), "read row", func(context.Context) error {
			attempts++
			return errors.New("connection reset")
		})
		if attempts != store.MaxAttempts || err == nil || !strings.HasPrefix(err.Error(), "read row: 4 attempts: ") {
			t.Errorf("%d attempts, error %v", attempts, err)
		}
		attempts = 0
		err = store.Retry(t.Context(), "read row", func(ctx context.Context) error {
			if attempts++; attempts == 1 {
				<-ctx.Done() // the response never arrives
				return ctx.Err()
			}
			return nil
		})
		if attempts != 2 || err != nil {
			t.Errorf("%d attempts, error %v; want 2 attempts, because the first took too long", attempts, err)
		}
		attempts = 0
		ctx, cancel := context.WithCancelCause(t.Context())
		err = store.Retry(ctx, "read row", func(context.Context) error {
			attempts++
			cancel(errStopped)
			return &azcore.ResponseError{StatusCode: 503}
		})
		if attempts != 1 || !errors.Is(err, errStopped) {
			t.Errorf("%d attempts, error %v; want 1, because the caller stopped", attempts, err)
		}
	})
}

// The limit for received messages may rise while a receiver waits. Claims ignore it.
func TestBuffer_LimitsReceivedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int64
		most.Store(2)
		b := newBuffer(5, func() int { return int(most.Load()) })
		if got := b.reserve(t.Context(), 32, nil); got != 2 {
			t.Fatalf("took %d, want 2", got)
		}
		if !b.tryReserve(1) || b.inUse() != 3 {
			t.Errorf("no slot for a claim, %d in use", b.inUse())
		}
		got := make(chan int)
		go func() { got <- b.reserve(t.Context(), 32, func() { t.Error("the buffer is reported as full") }) }()
		synctest.Wait()
		most.Store(4)
		if n := <-got; n != 1 {
			t.Errorf("took %d after the limit has risen, want 1", n)
		}
	})
}

func TestBuffer_NotifiesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(5, func() int { return math.MaxInt32 })
		if got := b.reserve(t.Context(), 32, nil); got != 5 {
			t.Fatalf("took %d, want 5", got)
		}
		full := 0
		got := make(chan int)
		go func() { got <- b.reserve(t.Context(), 2, func() { full++ }) }()
		synctest.Wait()
		b.release(3)
		if n := <-got; n != 2 || full != 1 {
			t.Errorf("took %d, reported full %d times; want 2 and 1", n, full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n := b.reserve(ctx, 1, nil); n != 0 {
			t.Errorf("took %d after ctx ended, want 0", n)
		}
	})
}
