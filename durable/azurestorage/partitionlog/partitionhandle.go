package partitionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// partitionHandle is a partition of a hub, owned by this process or not.
type partitionHandle struct {
	hub    *Hub
	number int
	prefix string // start of its blob names

	acquiring chan struct{} // held while the partition is acquired or released
	held      atomic.Int32  // callers that need the partition for longer than one request
	own       atomic.Pointer[owner]
	reader    follower
	mail      clientMail

	leaving atomic.Bool // a worker is releasing the partition

	// damage is the error of the last attempt to open the partition, if blobs were damaged or missing.
	// acquireAll uses it.
	damage    error
	damagedAt time.Time

	// announced is the time of this process's last mail that the owner finds soon: the bell announced
	// it, or it followed such mail within ringAfter.
	announced atomic.Pointer[time.Time]

	answerTook atomic.Int64 // last time between sending a request and its answer, in nanoseconds
}

func newPartitionHandle(h *Hub, number int) *partitionHandle {
	s := &partitionHandle{hub: h, number: number, prefix: fmt.Sprintf("p%02d/", number), acquiring: make(chan struct{}, 1)}
	s.reader = follower{handle: s, busy: make(chan struct{}, 1)}
	s.mail.handle = s
	return s
}

// name returns the partition's name as a sender of mail.
func (s *partitionHandle) name() string { return fmt.Sprintf("p%02d", s.number) }

// queue returns the partition's name in metrics.
func (s *partitionHandle) queue() string { return s.hub.blobs.Name + "/" + s.name() }

func (s *partitionHandle) logConfig() bloblog.Config {
	return bloblog.Config{Blobs: s.hub.blobs, Leases: s.hub.leases, Hub: s.hub.id, Confirm: s.hub.confirm, Missing: s.missingLog, Prefix: s.prefix, Lease: s.hub.cfg.LeaseInterval, Clock: clocks.Of(s.hub.cfg.Transport), Log: s.hub.log}
}

func (s *partitionHandle) mailConfig() mailbox.Config {
	return mailbox.Config{Blobs: s.hub.blobs, Hub: s.hub.id, Confirm: s.hub.confirm, MustExist: s.hub.chains == created, Prefix: s.prefix, Log: s.hub.log}
}

// owner returns the partition if this process owns it, else nil.
func (s *partitionHandle) owner() *owner {
	o := s.own.Load()
	if o == nil || o.hasEnded() {
		return nil
	}
	return o
}

// acquire acquires the partition if no process owns it. If another process does, the error is a
// *[bloblog.HeldError].
func (s *partitionHandle) acquire(ctx context.Context) (*owner, error) {
	select {
	case s.acquiring <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.acquiring }()
	if s.hub.life.Err() != nil {
		return nil, context.Cause(s.hub.life)
	}
	if o := s.own.Load(); o != nil {
		if !o.hasEnded() {
			return o, nil
		}
		o.abandon()
		s.clearOwner(metering.Lost)
	}
	o, err := openOwner(ctx, s)
	if err != nil {
		return nil, err
	}
	s.own.Store(o)
	s.hub.meter.RecordOwnership(s.queue(), metering.Acquired)
	s.hub.meter.AddOwned(s.queue(), 1)
	return o, nil
}

// close releases the partition if this process owns it and no caller holds it.
func (s *partitionHandle) close() error {
	s.acquiring <- struct{}{}
	defer func() { <-s.acquiring }()
	o := s.own.Load()
	if o == nil || s.held.Load() > 0 {
		return nil
	}
	change := metering.Released
	if o.hasEnded() {
		change = metering.Lost
	}
	defer s.clearOwner(change)
	return o.release()
}

// closeLost stops the tasks of a partition that this process has lost.
func (s *partitionHandle) closeLost(o *owner) {
	s.acquiring <- struct{}{}
	defer func() { <-s.acquiring }()
	if s.own.Load() == o {
		o.abandon()
		s.clearOwner(metering.Lost)
	}
}

// clearOwner records that this process no longer owns the partition. s.acquiring is held.
func (s *partitionHandle) clearOwner(why metering.Change) {
	s.own.Store(nil)
	s.recordMailRead(nil)
	s.hub.meter.RecordOwnership(s.queue(), why)
	s.hub.meter.AddOwned(s.queue(), -1)
}

// read calls f with a reader of the partition's current records: from memory if this process owns
// the partition, otherwise from the log.
func (s *partitionHandle) read(ctx context.Context, f func(*partition.Reader) error) error {
	if err := s.hub.ensure(ctx); err != nil {
		return err
	}
	for {
		o := s.owner()
		if o != nil {
			if err := f(&o.Reader); err == nil || !o.isEnd(err) { // else the records may be outdated
				return err
			}
		}
		err := s.reader.read(ctx, f)
		if now := s.owner(); now == nil || now == o {
			return err
		}
		// This process has acquired the partition meanwhile. The log may contain changes that the
		// owner does not know yet. If this result were used, a later read could return an older
		// state.
	}
}

// Intervals at which a client polls for the answer to a request.
const (
	minAnswerInterval = 5 * time.Millisecond
	maxAnswerInterval = 250 * time.Millisecond
	acquireAfter      = 150 * time.Millisecond // time without an answer until the client tries to acquire the partition
	acquireInterval   = 2 * time.Second
	borrowFor         = time.Second // time after which a partition that no client needs is released
)

// request makes the partition process a request: directly if this process owns it, otherwise by mail.
// It returns when the request is processed and durable. A message only has to be in the mailbox. msg is
// the message of the request, or nil.
func (s *partitionHandle) request(ctx context.Context, r partition.Request, msg *provider.TaskMessage, direct func(*partition.Partition) error) error {
	if err := s.hub.ensure(ctx); err != nil {
		return err
	}
	chance.AwaitTurn(ctx, turn{"request", s.number}, &recordReader{msg: msg})
	if o := s.owner(); o != nil && o.isDirect(ctx, s.mail.lastMailed()) {
		err := direct(o.Partition)
		if !errors.Is(err, logstore.ErrClosed) || ctx.Err() != nil {
			return err
		}
	}
	if msg != nil {
		record, err := partition.EncodeMessage(*msg)
		if err != nil {
			return err
		}
		if len(record) > s.hub.maxMessage {
			return fmt.Errorf("send message to instance %s: %w: it has %d bytes; want at most %d", msg.Target.InstanceID, logstore.ErrTooLarge, len(record), s.hub.maxMessage)
		}
		r.Message = record
	}
	number, err := s.mail.send(ctx, r)
	if err != nil || r.Kind == partition.RequestMessage {
		return err
	}
	defer s.mail.stopWaiting(number)
	answer, err := s.awaitAnswer(ctx, number)
	if err != nil {
		return &UncertainError{Cause: err} // the mail is durable, so the owner will process the request
	}
	return answer
}

// recordReader reads the record of a message. It encodes the message when it is first read.
type recordReader struct {
	msg  *provider.TaskMessage // nil after the first read
	rest bytes.Reader
}

// Read implements [io.Reader].
func (r *recordReader) Read(p []byte) (int, error) {
	if r.msg != nil {
		record, err := partition.EncodeMessage(*r.msg)
		if err != nil {
			return 0, err
		}
		r.msg = nil
		r.rest.Reset(record)
	}
	return r.rest.Read(p)
}

// awaitAnswer polls for the answer to a request in the mailbox. The answer is nil or the error of the
// request. If the partition has no owner, this process acquires it for a short time. Each poll costs a
// request. So the first one is delayed by 3/4 of the time that the previous answer took, but at most by
// acquireAfter.
func (s *partitionHandle) awaitAnswer(ctx context.Context, number uint64) (answer, err error) {
	sent := time.Now()
	gap, take := minAnswerInterval, sent.Add(acquireAfter)
	pause.For(ctx, min(time.Duration(s.answerTook.Load())*3/4, acquireAfter)) // if ctx has ended, read fails
	for {
		var answered bool
		err := s.read(ctx, func(r *partition.Reader) (err error) {
			answered, err = r.Answer(s.hub.sender, number)
			if answered {
				answer, err = err, nil
			}
			return err
		})
		if answered {
			s.answerTook.Store(int64(time.Since(sent)))
			return answer, nil
		}
		if err != nil && !errors.Is(err, bloblog.ErrNoLog) {
			return nil, err
		}
		if s.owner() == nil && (err != nil || time.Now().After(take)) {
			take = time.Now().Add(acquireInterval)
			if err := s.borrow(ctx); err != nil {
				return nil, err
			}
		}
		if !pause.For(ctx, gap) {
			return nil, ctx.Err()
		}
		gap = min(gap*3/2, maxAnswerInterval)
	}
}

// borrow acquires the partition if it has no owner. It releases the partition when no client has
// needed it for a while, unless this process is a worker by then.
func (s *partitionHandle) borrow(ctx context.Context) error {
	o, err := s.acquire(ctx)
	if held := (*bloblog.HeldError)(nil); errors.As(err, &held) {
		return nil
	}
	if err != nil || !o.borrowed.CompareAndSwap(false, true) {
		return err
	}
	s.hub.borrowing.Go(func() {
		for {
			select {
			case <-time.After(borrowFor):
			case <-s.hub.life.Done():
				return // Close releases it
			case <-o.over.Done():
				return
			}
			if s.hub.isRunning() {
				return // the worker decides
			}
			if s.mail.isIdle() && s.held.Load() == 0 {
				if err := s.close(); err != nil {
					s.hub.log.Warn("cannot release a partition; its lease will expire", "partition", s.number, "error", err)
				}
				return
			}
		}
	})
	return nil
}
