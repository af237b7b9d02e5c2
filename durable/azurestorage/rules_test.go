package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

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
