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

// Error codes of the storage services that decisions depend on. While a queue,
// table or container is being deleted it can be neither used nor created; the
// codes for that have an ending in common.
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

// StatusOf returns the HTTP status that err stands for, 0 if there was no
// answer at all.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*TransactionError](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.StatusCode
	}
	return 0
}

// CodeOf returns the storage error code that err stands for, "" if there is
// none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*TransactionError](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.ErrorCode
	}
	return ""
}

// IsConflict reports whether err says that a conditional write lost: the row is
// there already, its ETag is another, or it was deleted since, as a purge does
// (a table that is not there has a code of its own).
//
// Other refusals with the status 409 are not conflicts: an immutability policy, snapshots, or the
// number of blocks refuses the write however often it is repeated.
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

// conflictCodes are the codes, with the status 409, of writes that lost against another
// process. The codes for a name that exists already are not among them.
var conflictCodes = []string{
	"UpdateConditionNotSatisfied", "ConditionNotMet",
	"LeaseAlreadyPresent", "LeaseAlreadyBroken", "LeaseIdMismatchWithLeaseOperation", "LeaseNotPresentWithLeaseOperation",
	"LeaseIsBreakingAndCannotBeAcquired", "LeaseIsBreakingAndCannotBeChanged", "LeaseIsBrokenAndCannotBeRenewed",
}

// isExisting reports whether a code says that what a request creates exists.
func isExisting(code string) bool { return strings.HasSuffix(code, "AlreadyExists") }

// IsNotFound reports whether err says that what was asked for does not exist.
func IsNotFound(err error) bool { return StatusOf(err) == http.StatusNotFound }

// IsBlobGone reports whether err says that a blob is not there, in a container that is.
func IsBlobGone(err error) bool { return CodeOf(err) == codeBlobNotFound }

// IsContainerMissing reports whether err says that the container does not exist.
func IsContainerMissing(err error) bool { return CodeOf(err) == codeContainerNotFound }

// IsMissing reports whether err says that a queue or a table is not there.
func IsMissing(err error) bool {
	code := CodeOf(err)
	return code == codeQueueNotFound || code == codeTableNotFound
}

// IsGone reports whether err, of a queue message's delete or update, says that
// the message is not ours any more: it was deleted, or it became visible and another
// worker received it.
func IsGone(err error) bool {
	switch CodeOf(err) {
	case CodeMessageNotFound, CodePopReceiptMismatch:
		return true
	}
	return IsNotFound(err)
}

// IsTransient reports whether the same request may succeed when it is made
// again. It says nothing about whether the request took effect.
func IsTransient(err error) bool {
	switch status := StatusOf(err); status {
	case 0:
		return !errors.Is(err, context.Canceled) && !errors.Is(err, ErrNeverSent)
	case http.StatusConflict: // it was deleted a moment ago; creating it works later
		return strings.HasSuffix(CodeOf(err), codeSuffixBeingDeleted)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// WasNotApplied reports whether the failed request certainly had no effect. A
// refusal by a status that stands for overload is not certain: it may come from
// a gateway before which the request had passed.
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

// IsServerBusy reports whether an overloaded service refused the request and did not process
// it. A gateway, which the request may have passed before, does not answer with this code.
func IsServerBusy(err error) bool { return CodeOf(err) == codeServerBusy }

// ErrNeverSent marks errors that kept a request from being sent.
var ErrNeverSent = errors.New("request was not sent")

// Attempts at an idempotent operation, the delay after the first of them, and
// the time that each may take. Two that take all of it are enough: a service that answers
// so slowly must not get more requests for it. An operation that the service refuses is
// retried for refusedFor.
const (
	MaxAttempts     = 4
	FirstRetryDelay = 30 * time.Millisecond
	maxRetryDelay   = 5 * time.Second
	attemptTimeout  = time.Minute
	refusedFor      = 30 * time.Second
)

// Retry makes attempts at an operation that may be repeated without harm until
// one succeeds, fails for good, or enough are made. The error says what was
// tried.
func Retry(ctx context.Context, what string, attempt func(ctx context.Context) error) error {
	return RetryIf(ctx, what, IsTransient, attempt)
}

// RetryIf is retry for an operation that may be repeated only after failures
// for which again is true.
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
		case retries.Again(ctx, what, err):
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
	made  int           // failed attempts
	delay time.Duration // before the next attempt
}

// NewRetries returns the retries of an operation that starts now.
func NewRetries() *Retries { return &Retries{begun: time.Now(), delay: FirstRetryDelay} }

// Made returns the number of failed attempts.
func (r *Retries) Made() int { return r.made }

// Again waits for the next attempt after one has failed with err. It returns false if the
// operation is not retried: MaxAttempts have failed and the service did not refuse the last
// one, refusedFor has passed, the limit of [RetryBefore] or the deadline is too close, or ctx
// has ended.
func (r *Retries) Again(ctx context.Context, what string, err error) bool {
	r.made++
	passed, wait := time.Since(r.begun), Jitter(ctx, what, r.delay)
	r.delay = min(3*r.delay, maxRetryDelay)
	isLast := !isRefusal(err) || passed >= refusedFor || isTooLate(ctx, wait)
	if passed >= 2*attemptTimeout || r.made >= MaxAttempts && isLast {
		return false
	}
	return pause.For(ctx, wait)
}

// isRefusal reports whether err is the answer of a service that may accept the request later.
func isRefusal(err error) bool { return StatusOf(err) != 0 && IsTransient(err) }

// isTooLate reports whether the time after a wait is past the deadline of ctx or past the
// limit of [RetryBefore].
func isTooLate(ctx context.Context, wait time.Duration) bool {
	at := time.Now().Add(wait)
	deadline, ok := ctx.Deadline()
	before, limited := ctx.Value(retryBeforeKey{}).(time.Time)
	return ok && !at.Before(deadline) || limited && !at.Before(before)
}

// RetryBefore returns a context whose operations are not retried after limit, for example
// the end of a lease. The first MaxAttempts follow each other quickly and ignore the limit.
func RetryBefore(ctx context.Context, limit time.Time) context.Context {
	return context.WithValue(ctx, retryBeforeKey{}, limit)
}

type retryBeforeKey struct{}

// Once makes one attempt that ends within attemptTimeout. The time for which its
// requests wait for their turn does not count: they have not been sent yet.
func Once(ctx context.Context, attempt func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(attemptTimeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := attempt(context.WithValue(ctx, turnKey{}, &turn{timer: timer, at: time.Now()}))
	if err != nil && errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", attemptTimeout, context.DeadlineExceeded)
	}
	return err
}

// A turn records when an attempt may send its request.
type turn struct {
	timer *time.Timer // ends the attempt
	at    time.Time   // when the turn came; before that, when the attempt began
}

// turnKey is the context key of an attempt's *turn.
type turnKey struct{}

// sentAt returns the earliest time at which the last request of an attempt was sent.
func sentAt(ctx context.Context) time.Time { return ctx.Value(turnKey{}).(*turn).at }

// Jitter returns a duration between half of d and d that is left to chance, so
// that those who failed together do not come back together. The purpose is what
// is waited for.
func Jitter(ctx context.Context, purpose string, d time.Duration) time.Duration {
	return d/2 + time.Duration(chance.Float64(ctx, purpose)*float64(d/2+1))
}

// deletionPatience is the longest wait for the service to delete a queue, a table or a
// container. Until then the service refuses to create one with the same name.
const deletionPatience = 2 * time.Minute

// retryCreation is [Retry] of the creation of a resource. It also waits until the service has
// deleted an earlier one with the same name.
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

// ignoreExisting returns nil instead of the error that says that a resource to
// create exists.
func ignoreExisting(err error) error {
	if code := CodeOf(err); StatusOf(err) == http.StatusConflict && (code == "" || isExisting(code)) {
		return nil
	}
	return err
}

// Ignore returns nil instead of an error of one of the given statuses.
func Ignore(err error, statuses ...int) error {
	if err != nil && slices.Contains(statuses, StatusOf(err)) {
		return nil
	}
	return err
}

// attemptKey is the key under which a context has the number of a repeated attempt.
type attemptKey struct{}

// attempts returns the context of the n-th attempt.
func attempts(ctx context.Context, n int) context.Context {
	if n == 1 {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, n)
}

// IsUnreadable reports whether err is the fault of what is stored: it cannot be
// decoded, or is not there.
func IsUnreadable(err error) bool {
	_, damaged := errors.AsType[*wire.DamageError](err)
	return damaged || IsNotFound(err) && !IsMissing(err)
}
