package bloblog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/google/uuid"
)

// Log is the log of a partition, opened by its owner. It implements [logstore.Log], which documents
// Append, Size, Rotate, Reserve and Close.
type Log struct {
	ownership
	chain *chain.Chain
	tasks sync.WaitGroup // background goroutines

	// Used only by the goroutine that appends groups.
	size, part int64 // bytes since the last rotation; bytes between the last two rotations
	turned     bool

	mu      chain.Lock // held during an append; protects the fields below
	history history
	before  []blobGroups  // blobs before the current one
	next    chan prepared // receives the next blob; nil before prepare and after prepared
	buf     []byte
	closed  bool
}

var _ logstore.Log = (*Log)(nil)

// blobGroups is a blob and the upper limit of its group numbers.
type blobGroups struct{ number, last uint64 }

// prepared is the result of preparing the next blob.
type prepared struct {
	blob *ownBlob
	err  error
}

// Open acquires the log and returns its content. It creates the log if it does not exist. The error
// is a *[HeldError] if another process owns the log, and a *[chain.DamageError] if a blob is
// damaged or missing. Open changes nothing in a damaged log.
func Open(ctx context.Context, cfg Config) (*Log, *Recovered, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, nil, err
	}
	var l *Log
	var r *Recovered
	err := retryMoved(func() (err error) {
		l = &Log{ownership: ownership{cfg: cfg}, chain: cfg.chain(), mu: chain.NewLock(), part: min(cfg.MaxSize, 8<<20)}
		l.own, l.end = context.WithCancel(context.WithoutCancel(ctx))
		if r, err = l.findAndAcquire(ctx); err != nil {
			l.Abandon()
			l.renewal.Wait()
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open log %s: %w", cfg.Prefix, err)
	}
	return l, r, nil
}

// findAndAcquire finds the log, or creates it, and acquires it.
func (l *Log) findAndAcquire(ctx context.Context) (*Recovered, error) {
	current, all, err := l.cfg.find(ctx, l.chain)
	if errors.Is(err, ErrNoLog) {
		if _, _, err = l.chain.Create(ctx, 1); err == nil {
			err = errMoved // the next attempt finds the new log
		}
	}
	if err != nil {
		return nil, err
	}
	held := &HeldError{l.chain.Name(current.Number), current.Changed}
	if current.Leased {
		return nil, held
	}
	if current.Size == 0 {
		if err := l.chain.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	own := l.ownBlob(current)
	if err := l.acquire(ctx, own); err != nil {
		switch store.StatusOf(err) {
		case http.StatusConflict:
			return nil, held
		case http.StatusNotFound, http.StatusPreconditionFailed:
			return nil, fmt.Errorf("%w: %w", errMoved, err)
		}
		l.releaseLease(ctx, own) // the service may have granted it
		return nil, err
	}
	l.current = own
	l.renewal.Go(l.renew) // reading the log can take longer than the lease lasts
	r, err := l.recover(ctx, own, all)
	if err != nil {
		l.releaseLease(ctx, l.current)
		return nil, err
	}
	return r, nil
}

// recover reads an acquired log and records the new owner in it.
func (l *Log) recover(ctx context.Context, own *ownBlob, all []chain.Link) (_ *Recovered, err error) {
	s := scan{chain: l.chain}
	if own.offset, err = s.readWhole(ctx, own.Link); err != nil {
		return nil, err
	}
	if s.sealed != "" {
		return nil, s.movedFrom(own.Link)
	}
	own.blocks = s.frames
	r, err := s.recovered(ctx, own.Link, all)
	if err != nil {
		return nil, err
	}
	l.history = s.history
	for _, g := range r.Groups {
		l.size += int64(len(g.Changes))
	}
	l.turned = own.offset-l.size >= l.cfg.MaxSize/8 // start a new blob, so that later owners do not read groups that the base has
	for _, earlier := range all {
		if earlier.Number < own.Number {
			l.before = append(l.before, blobGroups{earlier.Number, s.before})
		}
	}
	if own.offset == 0 {
		if err := l.appendTo(own, l.header(own.Number)); err != nil {
			return nil, err
		}
	}
	if own.blocks >= l.cfg.MaxBlocks { // owners that append no group also fill a blob
		if err := l.rollOver(); err != nil {
			return nil, err
		}
	}
	l.history.open(l.cfg.Clock.Now().Wall)
	r.OpenCount, r.CrashCount = l.history.opens, l.history.crashes
	opened := numbered(kindOpened, l.history.opens, func(c *logstore.Coder) { c.Uint(&l.history.crashes) })
	return r, l.appendTo(l.current, opened)
}

func (l *Log) ownBlob(link chain.Link) *ownBlob {
	return &ownBlob{Link: link, AppendBlob: l.chain.Blob(link.Number), leaseID: uuid.NewString()}
}

// header returns the first frame of a blob.
func (l *Log) header(number uint64) chain.Frame { return numbered(kindHeader, number, l.history.code) }

// Append implements [logstore.Log].
func (l *Log) Append(number uint64, changes logstore.Parts) error {
	size := changes.Size()
	if size > MaxGroup {
		return fmt.Errorf("%w: %d bytes of changes; want at most %d", logstore.ErrTooLarge, size, MaxGroup)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if number != l.history.last+1 {
		return fmt.Errorf("group %d after group %d; want %d", number, l.history.last, l.history.last+1)
	}
	frames := groupFrames(number, changes, l.cfg.MaxBlock-chain.FrameHeaderSize)
	if b := l.current; l.turned || b.offset >= l.cfg.MaxSize || b.blocks+len(frames) > l.cfg.MaxBlocks {
		if err := l.rollOver(); err != nil {
			return err
		}
	}
	for _, f := range frames {
		if err := l.appendTo(l.current, f); err != nil {
			return err
		}
	}
	l.history.last = number
	l.size += int64(size)
	if b := l.current; l.next == nil && (l.size >= l.part*3/4 || b.offset >= l.cfg.MaxSize*3/4 || b.blocks >= l.cfg.MaxBlocks*3/4) {
		l.prepare()
	}
	return nil
}

// MaxGroup is the maximum size of a group's changes, in bytes. A group must fit into memory.
const MaxGroup = 512 << 20

// Size implements [logstore.Log]. It includes the groups of earlier owners that the base lacks. Otherwise a
// log whose owners write little would never be flushed.
func (l *Log) Size() int64 { return l.size }

// Rotate implements [logstore.Log]. The next group starts a new blob.
func (l *Log) Rotate() { l.part, l.size, l.turned = max(l.size, l.cfg.MaxSize/64), 0, true }

// Reserve implements [logstore.Log]. There is always room.
func (l *Log) Reserve(int64) error { return nil }

// SetBase records the manifest of a base that contains all groups up to last. It then deletes
// obsolete blobs in the background. It is safe for concurrent use. It has the errors of Append.
func (l *Log) SetBase(last uint64, manifest []byte) error {
	if most := l.cfg.MaxBlock / 2; len(manifest) > most {
		return fmt.Errorf("a manifest of %d bytes; want at most %d", len(manifest), most)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last < l.history.base || last > l.history.last {
		return fmt.Errorf("a manifest of group %d; want %d to %d", last, l.history.base, l.history.last)
	}
	if err := l.appendTo(l.current, chain.Frame{Kind: kindBase, Number: last, Payload: manifest}); err != nil {
		return err
	}
	l.history.base, l.history.manifest = last, slices.Clone(manifest)
	var covered []blobGroups
	l.before = slices.DeleteFunc(l.before, func(b blobGroups) bool {
		is := b.last <= last && b.number+1 < l.current.Number // keep the predecessor of the current blob
		if is {
			covered = append(covered, b)
		}
		return is
	})
	if len(covered) > 0 {
		l.tasks.Go(func() { l.remove(covered) })
	}
	return nil
}

// remove deletes blobs. The next manifest retries failed deletions.
func (l *Log) remove(covered []blobGroups) {
	for _, b := range covered {
		if err := l.chain.Blob(b.number).Remove(l.own, "", ""); err != nil && !store.IsNotFound(err) {
			l.mu.Lock()
			l.before = append(l.before, b)
			l.mu.Unlock()
		}
	}
}

// Release closes the log, so that another process can acquire it immediately. If ctx ends first,
// Release abandons the log.
func (l *Log) Release(ctx context.Context) error {
	defer context.AfterFunc(ctx, l.Abandon)()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	err := l.appendTo(l.current, chain.Frame{Kind: kindClosed})
	next, current := l.next, l.current
	l.next, l.closed = nil, true
	l.mu.Unlock()
	if err == nil {
		if next != nil {
			l.tasks.Go(func() {
				if p := <-next; p.err == nil {
					_ = p.blob.Remove(l.own, p.blob.leaseID, "") // else the next roll-over deletes it
				}
			})
		}
		l.tasks.Wait()
	}
	l.Abandon()
	l.renewal.Wait()
	released := l.leases(current).Release(ctx, current.leaseID)
	return errors.Join(err, store.Ignore(released, http.StatusConflict, http.StatusNotFound))
}

// Close implements [logstore.Log]. It calls Release with a timeout of a third of the lease duration.
func (l *Log) Close(bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.own), l.cfg.Lease/3)
	defer cancel()
	return l.Release(ctx)
}

// appendTo appends a frame to a blob. It retries until the result is certain or the lease expires.
// After an error other than a [logstore.UncertainError], nothing was appended.
func (l *Log) appendTo(b *ownBlob, f chain.Frame) error {
	if l.closed {
		return errClosed
	}
	l.buf = l.chain.AppendFrame(l.buf[:0], f)
	defer func() {
		if cap(l.buf) > 1<<20 {
			l.buf = nil
		}
	}()
	doubt, limit := false, l.cfg.Lease/3
	for delay := store.FirstRetryDelay; ; delay = min(2*delay, time.Second) {
		if !l.IsValid() {
			return l.lose(errLeaseExpired)
		}
		err := l.once(limit, func(ctx context.Context) error {
			_, _, err := b.Append(ctx, l.buf, b.leaseID, b.offset)
			return err
		})
		if store.CodeOf(err) == store.CodeAppendPosition {
			doubt = true
			err = l.compare(b, limit)
		}
		if errors.Is(err, context.DeadlineExceeded) { // the connection may be slow
			limit = min(2*limit, maxAppendTimeout)
		}
		switch {
		case err == nil:
			b.offset += int64(len(l.buf))
			b.blocks++
			return nil
		case l.own.Err() != nil:
			return l.lose(errClosed)
		case !errors.Is(err, errForeignAppend) && store.IsTransient(err):
			doubt = doubt || !store.WasNotApplied(err)
		case doubt, store.IsConflict(err), store.IsNotFound(err):
			return l.lose(fmt.Errorf("append to %s: %w", b.Name, err))
		default:
			return fmt.Errorf("append to %s: %w", b.Name, err)
		}
		pause.For(l.own, store.Jitter(l.own, "append again", delay))
	}
}

// maxAppendTimeout limits an attempt to append. The first attempt may take a third of the lease
// duration. After each timeout, the limit is doubled.
const maxAppendTimeout = time.Minute

// once makes a request with a timeout.
func (l *Log) once(timeout time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.own, timeout)
	defer cancel()
	return ask(ctx)
}

// errForeignAppend means that the blob has other content at the offset of an append.
var errForeignAppend = errors.New("another process appended at this offset")

// compare returns nil if the blob has the intended content at the offset of the append.
func (l *Log) compare(b *ownBlob, timeout time.Duration) error {
	return l.once(timeout, func(ctx context.Context) error {
		part, err := b.Read(ctx, b.offset, int64(len(l.buf)))
		if err == nil && (!b.Is(part) || string(part.Content) != string(l.buf)) {
			return errForeignAppend
		}
		return err
	})
}

// prepare creates and leases the next blob in the background. mu is locked.
func (l *Log) prepare() {
	next, b := make(chan prepared, 1), l.current
	l.next = next
	l.tasks.Go(func() {
		own, err := l.create(b)
		next <- prepared{own, err}
	})
}

// create creates and leases the blob after the current one. If the hub was deleted and created
// again, the blob is in another hub's container: its hub ID does not match, so the other hub deletes
// it. The log does not continue there, because the seal in the current blob would be missing.
func (l *Log) create(current *ownBlob) (*ownBlob, error) {
	number := current.Number + 1
	for range findAttempts {
		link, mine, err := l.chain.Create(l.own, number)
		if err == nil && !mine {
			err = l.removeLeftover(current, number)
		} else if err == nil {
			own := l.ownBlob(link)
			if err = l.acquire(l.own, own); err == nil {
				return own, nil
			}
		}
		if err != nil && !store.IsConflict(err) && !store.IsNotFound(err) { // else another process interfered
			return nil, err
		}
	}
	return nil, fmt.Errorf("create %s: %w", l.chain.Name(number), errMoved)
}

// removeLeftover deletes a leftover blob after the current one. It renews the lease after it has
// listed the blob. If that succeeds, no other process owned the log at that time. So the listed
// blob cannot have become the log since.
func (l *Log) removeLeftover(current *ownBlob, number uint64) error {
	left, _, err := l.chain.Find(l.own, number)
	if err != nil || left.Number == 0 {
		return err
	}
	err = store.Retry(l.own, "renew the lease", func(ctx context.Context) error { return l.renewed(ctx, current) })
	if err != nil {
		if store.IsTransient(err) {
			return err
		}
		return l.lose(err)
	}
	return l.chain.Remove(l.own, left)
}

// rollOver continues the log in the next blob. mu is locked.
func (l *Log) rollOver() error {
	old := l.current
	next, err := l.prepared()
	for err != nil && store.IsTransient(err) && l.IsValid() && pause.For(l.own, time.Second) {
		next, err = l.prepared()
	}
	if err == nil {
		l.setBlobs(old, next)
		err = l.appendTo(next, l.header(next.Number))
	}
	if err == nil {
		err = l.appendTo(old, sealFrame(next.Link))
	}
	if err != nil {
		l.setBlobs(old, nil)
		return err
	}
	l.setBlobs(next, nil)
	l.before = append(l.before, blobGroups{old.Number, l.history.last})
	l.turned = false
	l.tasks.Go(func() { _ = l.leases(old).Release(l.own, old.leaseID) }) // else the lease expires
	return nil
}

// prepared returns the next blob, with a recently renewed lease. mu is locked.
func (l *Log) prepared() (*ownBlob, error) {
	if l.closed {
		return nil, errClosed
	}
	if l.next == nil {
		l.prepare()
	}
	p := <-l.next
	l.next = nil
	if p.err == nil && p.blob.renewed.Add(l.cfg.Lease/3).Left(l.cfg.Clock.Now()) < 0 {
		p.err = l.renewed(l.own, p.blob)
	}
	return p.blob, p.err
}
