package bloblog

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// ownership is the ownership of a log: the lease on its current blob. While a seal is appended, the
// owner also needs the lease on the successor: the service may have applied the seal already, and the
// log belongs to the process that leases its last blob.
type ownership struct {
	cfg     Config
	own     context.Context // ends with the ownership
	renewal sync.WaitGroup

	state     sync.Mutex // protects the fields below; not held during requests
	current   *ownBlob
	successor *ownBlob // nil unless the current blob is being sealed
	cause     error    // reason why the ownership has ended
	end       context.CancelFunc
}

// ownBlob is a blob that the owner has leased.
type ownBlob struct {
	chain.Link
	*store.AppendBlob
	leaseID string
	offset  int64 // offset of the next append; Log.mu protects it
	blocks  int   // Log.mu protects it

	renewed, until clocks.Moment // ownership.state protects them
}

// leases returns a client for b that sends through cfg.Leases.
func (o *ownership) leases(b *ownBlob) *store.AppendBlob { return o.cfg.Leases.AppendBlob(b.Name) }

// acquire acquires the lease on b. The ETag ensures that it is the blob that was created or listed.
func (o *ownership) acquire(ctx context.Context, b *ownBlob) error {
	return store.Retry(ctx, "lease "+b.Name, func(ctx context.Context) error {
		return o.extend(b, func() error { return o.leases(b).Acquire(ctx, b.leaseID, o.cfg.Lease, b.ETag) })
	})
}

// releaseLease releases a lease that the service granted or may have granted, even if ctx has ended.
// If it fails, other processes wait until the lease expires.
func (o *ownership) releaseLease(ctx context.Context, b *ownBlob) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.Lease/3)
	defer cancel()
	_ = o.leases(b).Release(ctx, b.leaseID)
}

// renewed renews the lease on b. It fails if another process has leased the blob since this one
// acquired the lease.
func (o *ownership) renewed(ctx context.Context, b *ownBlob) error {
	return o.extend(b, func() error { return o.leases(b).Renew(ctx, b.leaseID) })
}

// extend calls ask, which acquires or renews a lease, and updates the expiry. The lease counts from
// the start of the request.
func (o *ownership) extend(b *ownBlob, ask func() error) error {
	sent := o.cfg.Clock.Now()
	err := ask()
	if err == nil {
		o.state.Lock()
		defer o.state.Unlock()
		b.renewed, b.until = sent, sent.Add(o.cfg.Lease-o.cfg.Lease/10) // clocks may run at different speeds
	}
	return err
}

// IsValid reports whether no other process can own the log now. The last successful acquisition or
// renewal was sent less than the lease duration ago, by both clocks.
func (o *ownership) IsValid() bool {
	o.state.Lock()
	defer o.state.Unlock()
	return o.valid()
}

func (o *ownership) valid() bool {
	now := o.cfg.Clock.Now()
	ended := o.current.until.HasPassed(now) || o.successor != nil && o.successor.until.HasPassed(now)
	return o.cause == nil && !ended
}

// setBlobs sets the blobs whose leases the owner needs.
func (o *ownership) setBlobs(current, successor *ownBlob) {
	o.state.Lock()
	defer o.state.Unlock()
	o.current, o.successor = current, successor
}

// blobs returns the blobs whose leases the owner needs. The successor is nil unless the current blob
// is being sealed.
func (o *ownership) blobs() (current, successor *ownBlob) {
	o.state.Lock()
	defer o.state.Unlock()
	return o.current, o.successor
}

// Lost returns a channel that is closed when the ownership ends. Reasons are: the lease was lost or
// has expired, the result of an append is unknown, or Release or Abandon was called.
func (o *ownership) Lost() <-chan struct{} { return o.own.Done() }

// Err returns the reason why the ownership has ended, or nil.
func (o *ownership) Err() error {
	o.state.Lock()
	defer o.state.Unlock()
	return o.cause
}

var errClosed = errors.New("the log was closed")

// lose ends the ownership. It returns the error of an append with unknown result.
func (o *ownership) lose(cause error) error {
	o.state.Lock()
	defer o.state.Unlock()
	if o.cause == nil {
		o.cause = cause
		o.end()
		if !errors.Is(cause, errClosed) {
			o.cfg.Log.Warn("lost the log of a partition", "log", o.cfg.Prefix, "reason", cause)
		}
	}
	return &logstore.UncertainError{Cause: fmt.Errorf("log %s: %w", o.cfg.Prefix, o.cause)}
}

// errLeaseExpired means that the lease could not be renewed in time.
var errLeaseExpired = errors.New("the lease expired before it could be renewed")

// renew renews the lease until the ownership ends.
func (o *ownership) renew() {
	every := o.cfg.Lease / 3
	for wait := every; pause.For(o.own, wait); {
		o.state.Lock()
		b, now := o.current, o.cfg.Clock.Now()
		if s := o.successor; s != nil && s.renewed.Left(b.renewed) < 0 {
			b = s
		}
		until := b.until
		wait = b.renewed.Add(every).Left(now)
		o.state.Unlock()
		if wait > 0 { // another blob has become the current one
			continue
		}
		ctx, cancel := context.WithTimeout(o.own, until.Left(now))
		err := o.renewed(ctx, b)
		cancel()
		o.state.Lock()
		needed, valid := b == o.current || b == o.successor, o.valid()
		o.state.Unlock()
		switch {
		case err == nil:
		case !needed: // the log continues in another blob
		case o.own.Err() != nil:
		case !valid:
			_ = o.lose(fmt.Errorf("%w: %w", errLeaseExpired, err))
		case store.IsTransient(err):
			wait = min(every/10, until.Left(o.cfg.Clock.Now()))
		default:
			_ = o.lose(fmt.Errorf("renew the lease: %w", err))
		}
	}
}

// Renew renews the lease. It fails if another process has owned the log since this one opened it.
func (o *ownership) Renew(ctx context.Context) error {
	for {
		current, successor := o.blobs()
		err := o.renewed(ctx, current)
		if err == nil && successor != nil {
			err = o.renewed(ctx, successor)
		}
		if c, s := o.blobs(); err != nil || c == current && s == successor {
			return err
		}
	}
}

// Abandon ends the ownership without a request, as the death of the process does. Other processes
// can acquire the log after the lease has expired.
func (o *ownership) Abandon() { _ = o.lose(errClosed) }
