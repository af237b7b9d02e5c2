package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// Error codes of the storage services that decisions depend on. While a queue,
// table or container is being deleted it can be neither used nor created; the
// codes for that have an ending in common.
const (
	codeSuffixBeingDeleted = "BeingDeleted"
	codeMessageNotFound    = "MessageNotFound"
	codePopReceiptMismatch = "PopReceiptMismatch"
	codeLeaseIDMissing     = "LeaseIdMissing"
	codeBlobNotFound       = "BlobNotFound"
	codeContainerNotFound  = "ContainerNotFound"
	codeResourceNotFound   = "ResourceNotFound"
	codeQueueNotFound      = "QueueNotFound"
	codeTableNotFound      = "TableNotFound"
)

// statusOf returns the HTTP status that err stands for, 0 if there was no
// answer at all.
func statusOf(err error) int {
	if e, ok := errors.AsType[*transactionError](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.StatusCode
	}
	return 0
}

// codeOf returns the storage error code that err stands for, "" if there is
// none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*transactionError](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.ErrorCode
	}
	return ""
}

// isConflict reports whether err says that a conditional write lost: the row is
// there already, its ETag is another, or it was deleted since, as a purge does
// (a table that is not there has a code of its own).
func isConflict(err error) bool {
	switch statusOf(err) {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return true
	case http.StatusNotFound:
		return codeOf(err) == codeResourceNotFound
	}
	return false
}

func isNotFound(err error) bool { return statusOf(err) == http.StatusNotFound }

// isBlobGone reports whether err says that a blob is not there, in a container that is.
func isBlobGone(err error) bool { return codeOf(err) == codeBlobNotFound }

// isMissing reports whether err says that a queue or a table is not there.
func isMissing(err error) bool {
	code := codeOf(err)
	return code == codeQueueNotFound || code == codeTableNotFound
}

// isGone reports whether err, of a queue message's delete or update, says that
// the message is not ours any more: it was deleted, or its visibility ended and
// somebody else received it.
func isGone(err error) bool {
	switch codeOf(err) {
	case codeMessageNotFound, codePopReceiptMismatch:
		return true
	}
	return isNotFound(err)
}

// isTransient reports whether the same request may succeed when it is made
// again. It says nothing about whether the request took effect.
func isTransient(err error) bool {
	switch status := statusOf(err); status {
	case 0:
		return !errors.Is(err, context.Canceled) && !errors.Is(err, errNeverSent)
	case http.StatusConflict: // it was deleted a moment ago; creating it works later
		return strings.HasSuffix(codeOf(err), codeSuffixBeingDeleted)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// wasNotApplied reports whether the failed request certainly had no effect. A
// refusal by a status that stands for overload is not certain: it may come from
// a gateway before which the request had passed.
func wasNotApplied(err error) bool {
	if errors.Is(err, errNeverSent) {
		return true
	}
	if status := statusOf(err); status != 0 {
		return !isTransient(err)
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// errNeverSent marks errors that kept a request from being sent.
var errNeverSent = errors.New("request was not sent")

// Attempts at an idempotent operation, the delay after the first of them, and
// the time that each may take. Two that take all of it are enough: who is answered as slowly
// as that must not ask more often for it.
const (
	maxAttempts     = 4
	firstRetryDelay = 30 * time.Millisecond
	attemptTimeout  = time.Minute
)

// retry makes attempts at an operation that may be repeated without harm until
// one succeeds, fails for good, or enough are made. The error says what was
// tried.
func retry(ctx context.Context, what string, attempt func(ctx context.Context) error) error {
	return retryIf(ctx, what, isTransient, attempt)
}

// retryIf is retry for an operation that may be repeated only after failures
// for which again is true.
func retryIf(ctx context.Context, what string, again func(error) bool, attempt func(ctx context.Context) error) error {
	begun, delay := time.Now(), firstRetryDelay
	for n := 1; ; n++ {
		err := once(attempts(ctx, n), attempt)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		case again(err) && (n == maxAttempts || time.Since(begun) >= 2*attemptTimeout):
			return fmt.Errorf("%s: %d attempts: %w", what, n, err)
		case !again(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		if !sleep(ctx, jitter(ctx, what, delay)) {
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		}
		delay *= 3
	}
}

// once makes one attempt that ends within attemptTimeout. The time for which its
// requests wait for their turn does not count: nobody has been asked for anything yet.
func once(ctx context.Context, attempt func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(attemptTimeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := attempt(context.WithValue(ctx, attemptTimerKey{}, timer))
	if err != nil && errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", attemptTimeout, context.DeadlineExceeded)
	}
	return err
}

// attemptTimerKey is where a context has the timer that ends an attempt.
type attemptTimerKey struct{}

// jitter returns a duration between half of d and d that is left to chance, so
// that those who failed together do not come back together. The purpose is what
// is waited for.
func jitter(ctx context.Context, purpose string, d time.Duration) time.Duration {
	return d/2 + time.Duration(chance.Float64(ctx, purpose)*float64(d/2+1))
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ignoreExisting returns nil instead of the error that says that a resource to
// create exists.
func ignoreExisting(err error) error {
	if statusOf(err) == http.StatusConflict && !isTransient(err) {
		return nil
	}
	return err
}

// ignore returns nil instead of an error of one of the given statuses.
func ignore(err error, statuses ...int) error {
	if err != nil && slices.Contains(statuses, statusOf(err)) {
		return nil
	}
	return err
}
