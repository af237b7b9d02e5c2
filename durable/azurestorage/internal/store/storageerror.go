package store

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
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// Error codes of the storage services. While a queue, table or container is being deleted, it can
// neither be used nor created; the codes of these errors end with codeSuffixBeingDeleted.
const (
	codeSuffixBeingDeleted = "BeingDeleted"
	CodeMessageNotFound    = "MessageNotFound"
	CodePopReceiptMismatch = "PopReceiptMismatch"
	CodeLeaseIDMissing     = "LeaseIdMissing"
	CodeAppendPosition     = "AppendPositionConditionNotMet"
	codeBlobNotFound       = "BlobNotFound"
	codeContainerNotFound  = "ContainerNotFound"
	codeServerBusy         = "ServerBusy"
	codeResourceNotFound   = "ResourceNotFound"
	codeQueueNotFound      = "QueueNotFound"
	codeTableNotFound      = "TableNotFound"
)

// StatusOf returns the HTTP status of err, 0 if err is not a response.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*TransactionError](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.StatusCode
	}
	return 0
}

// CodeOf returns the storage error code of err, "" if it has none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*TransactionError](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.ErrorCode
	}
	return ""
}

// IsConflict reports whether a conditional write failed because of another write: the row exists, has
// another ETag, or was deleted meanwhile, for example by a purge. A missing table is not a conflict;
// it has its own code.
//
// Other responses with status 409 are not conflicts either. An immutability policy, snapshots or the
// number of blocks reject the write no matter how often it is repeated.
func IsConflict(err error) bool {
	switch StatusOf(err) {
	case http.StatusConflict:
		code := CodeOf(err)
		return code == "" || slices.Contains(conflictCodes, code) || isExisting(code)
	case http.StatusPreconditionFailed:
		return true
	case http.StatusNotFound:
		return CodeOf(err) == codeResourceNotFound
	}
	return false
}

// conflictCodes are the codes with status 409 for writes that another process has overtaken. Codes for
// existing names are matched by isExisting.
var conflictCodes = []string{
	"UpdateConditionNotSatisfied", "ConditionNotMet",
	"LeaseAlreadyPresent", "LeaseAlreadyBroken", "LeaseIdMismatchWithLeaseOperation", "LeaseNotPresentWithLeaseOperation",
	"LeaseIsBreakingAndCannotBeAcquired", "LeaseIsBreakingAndCannotBeChanged", "LeaseIsBrokenAndCannotBeRenewed",
}

// isExisting reports whether a code means that the resource to create exists.
func isExisting(code string) bool { return strings.HasSuffix(code, "AlreadyExists") }

// IsNotFound reports whether err means that the requested resource does not exist.
func IsNotFound(err error) bool { return StatusOf(err) == http.StatusNotFound }

// IsBlobGone reports whether err means that a blob does not exist, although its container exists.
func IsBlobGone(err error) bool { return CodeOf(err) == codeBlobNotFound }

// IsContainerMissing reports whether err means that the container does not exist.
func IsContainerMissing(err error) bool { return CodeOf(err) == codeContainerNotFound }

// IsMissing reports whether err means that a queue or a table does not exist.
func IsMissing(err error) bool {
	code := CodeOf(err)
	return code == codeQueueNotFound || code == codeTableNotFound
}

// IsMessageGone reports whether err, from the deletion or update of a queue message, means that this
// process no longer owns the message: it was deleted, or it became visible and another worker received
// it.
func IsMessageGone(err error) bool {
	switch CodeOf(err) {
	case CodeMessageNotFound, CodePopReceiptMismatch:
		return true
	}
	return IsNotFound(err)
}

// IsTransient reports whether a repetition of the request may succeed. The failed request may have
// taken effect; see [WasNotApplied].
func IsTransient(err error) bool {
	switch status := StatusOf(err); status {
	case 0:
		return !errors.Is(err, context.Canceled) && !errors.Is(err, ErrNeverSent)
	case http.StatusConflict: // the resource is being deleted; a later creation succeeds
		return strings.HasSuffix(CodeOf(err), codeSuffixBeingDeleted)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// WasNotApplied reports whether the failed request certainly had no effect. It is false for statuses
// that mean overload, because a gateway may return them after the service has processed the request.
func WasNotApplied(err error) bool {
	if errors.Is(err, ErrNeverSent) || errors.Is(err, errNoToken) {
		return true
	}
	if status := StatusOf(err); status != 0 {
		return !IsTransient(err)
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// isServerBusy reports whether an overloaded service rejected the request without processing it. Only
// the service itself returns this code, not a gateway.
func isServerBusy(err error) bool { return CodeOf(err) == codeServerBusy }

// ErrNeverSent marks errors of requests that were not sent.
var ErrNeverSent = errors.New("request was not sent")

// Limits of retries. After MaxAttempts, an operation is retried only while the service refuses it, for
// up to refusedFor. Each attempt may take attemptLimit. Two attempts without a response are enough,
// because a service that is so slow must not get more requests.
const (
	MaxAttempts     = 4
	FirstRetryDelay = 30 * time.Millisecond
	maxRetryDelay   = 5 * time.Second
	attemptTimeout  = time.Minute
	refusedFor      = 30 * time.Second
)

// Retry repeats an idempotent operation until it succeeds, fails permanently, or the limits of retries
// are reached. The error contains what, the name of the operation.
func Retry(ctx context.Context, what string, attempt func(ctx context.Context) error) error {
	return RetryIf(ctx, what, IsTransient, attempt)
}

// RetryIf is [Retry] for an operation that may be repeated only after errors for which again returns
// true.
func RetryIf(ctx context.Context, what string, again func(error) bool, attempt func(ctx context.Context) error) error {
	for retries := NewRetries(); ; {
		err := Once(attempts(ctx, retries.made+1), attempt)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		case !again(err):
			return fmt.Errorf("%s: %w", what, explained(err))
		case retries.AwaitRetry(ctx, what, err):
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		default:
			return fmt.Errorf("%s: %d attempts: %w", what, retries.made, err)
		}
	}
}

// Retries decides whether an operation is retried.
type Retries struct {
	begun time.Time
	made  int           // number of failed attempts
	delay time.Duration // before the next attempt
}

// NewRetries returns the retries of an operation that starts now.
func NewRetries() *Retries { return &Retries{begun: time.Now(), delay: FirstRetryDelay} }

// FailedAttempts returns the number of failed attempts.
func (r *Retries) FailedAttempts() int { return r.made }

// AwaitRetry waits before the next attempt after an attempt has failed with err. It returns false if
// the operation must not be retried: ctx has ended, two attempts have failed and twice the
// attemptTimeout has passed, or MaxAttempts have failed and one of these conditions holds. The service
// did not refuse the last attempt, refusedFor has passed, or the limit of [RetryBefore] or the deadline
// is too close.
func (r *Retries) AwaitRetry(ctx context.Context, what string, err error) bool {
	r.made++
	passed, wait := time.Since(r.begun), Jitter(ctx, what, r.delay)
	r.delay = min(3*r.delay, maxRetryDelay)
	isLast := !isRefusal(err) || passed >= refusedFor || isTooLate(ctx, wait)
	if r.made > 1 && passed >= 2*attemptTimeout || r.made >= MaxAttempts && isLast {
		return false
	}
	return pause.For(ctx, wait)
}

// isRefusal reports whether err is a response of a service that may accept the request later.
func isRefusal(err error) bool { return StatusOf(err) != 0 && IsTransient(err) }

// isTooLate reports whether the time after the wait is past the deadline of ctx or the limit of
// [RetryBefore].
func isTooLate(ctx context.Context, wait time.Duration) bool {
	at := time.Now().Add(wait)
	deadline, ok := ctx.Deadline()
	before, limited := ctx.Value(retryBeforeKey{}).(time.Time)
	return ok && !at.Before(deadline) || limited && !at.Before(before)
}

// RetryBefore returns a context whose operations are not retried after limit, for example the expiry
// of a lease. The first MaxAttempts attempts follow each other quickly and ignore the limit.
func RetryBefore(ctx context.Context, limit time.Time) context.Context {
	return context.WithValue(ctx, retryBeforeKey{}, limit)
}

type retryBeforeKey struct{}

// attemptLimit returns the maximum duration of an attempt that uploads size bytes, or an unknown number if
// size is negative: attemptTimeout, and a second for each 64 KiB.
func attemptLimit(size int64) time.Duration {
	return attemptTimeout + time.Duration(max(0, size)>>16)*time.Second
}

// Once makes one attempt, limited by attemptLimit. Time during which its requests wait for their
// turn does not count.
func Once(ctx context.Context, attempt func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(attemptTimeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	turn := &turn{timer: timer, limit: attemptTimeout, at: time.Now()}
	err := attempt(context.WithValue(ctx, turnKey{}, turn))
	if err != nil && errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("no response within %v: %w", turn.limit, context.DeadlineExceeded)
	}
	return err
}

// A turn records when an attempt may send its request.
type turn struct {
	timer *time.Timer   // ends the attempt
	limit time.Duration // of the attempt, from the turn on
	at    time.Time     // time of the turn; before the turn, start of the attempt
}

// turnKey is the context key of an attempt's *turn.
type turnKey struct{}

// sentAt returns the earliest possible time of an attempt's last request.
func sentAt(ctx context.Context) time.Time { return ctx.Value(turnKey{}).(*turn).at }

// Jitter returns a random duration between d/2 and d, so that processes that failed together do not
// retry together. purpose names the random source.
func Jitter(ctx context.Context, purpose string, d time.Duration) time.Duration {
	return d/2 + time.Duration(chance.Float64(ctx, purpose)*float64(d/2+1))
}

// deletionPatience is the maximum time to wait for the service to delete a queue, a table or a
// container. Until then, a resource with the same name cannot be created.
const deletionPatience = 2 * time.Minute

// retryCreation is [Retry] for the creation of a resource. It also waits until the service has deleted
// an earlier resource with the same name.
func retryCreation(ctx context.Context, what string, attempt func(ctx context.Context) error) error {
	begun := time.Now()
	for delay := time.Second; ; delay = min(2*delay, 5*time.Second) {
		err := Retry(ctx, what, attempt)
		isBeingDeleted := StatusOf(err) == http.StatusConflict && strings.HasSuffix(CodeOf(err), codeSuffixBeingDeleted)
		if !isBeingDeleted || time.Since(begun) >= deletionPatience || !pause.For(ctx, Jitter(ctx, what, delay)) {
			return err
		}
	}
}

// ignoreExisting returns nil if err means that the resource to create exists. It returns other errors
// unchanged.
func ignoreExisting(err error) error {
	if code := CodeOf(err); StatusOf(err) == http.StatusConflict && (code == "" || isExisting(code)) {
		return nil
	}
	return err
}

// Ignore returns nil if err has one of the statuses. It returns other errors unchanged.
func Ignore(err error, statuses ...int) error {
	if err != nil && slices.Contains(statuses, StatusOf(err)) {
		return nil
	}
	return err
}

// attemptKey is the context key of the number of a repeated attempt.
type attemptKey struct{}

// attempts returns the context of the n-th attempt.
func attempts(ctx context.Context, n int) context.Context {
	if n == 1 {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, n)
}

// IsUnreadable reports whether err means that stored data is missing or cannot be decoded.
func IsUnreadable(err error) bool {
	_, damaged := errors.AsType[*wire.DamageError](err)
	return damaged || IsNotFound(err) && !IsMissing(err)
}
