package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
)

// owner is a partition that this process owns.
type owner struct {
	*partition.Partition
	share *share
	log   *bloblog.Log
	base  *runs.Base
	store *logstore.Store

	over     context.Context // ends when the partition is given up or lost
	end      context.CancelFunc
	ending   sync.Mutex // held while a task begins, and to end
	tasks    sync.WaitGroup
	couriers []*courier  // by the partitions that they go to
	borrowed atomic.Bool // a client took it

	mailing  chan struct{} // held by whoever takes mail, with the following
	receiver *mailbox.Receiver

	mu      sync.Mutex // protects the following
	drained int64      // the moment at which a look into the mailbox began that found it empty
	look    chan struct{}
	serving context.CancelFunc // ends Run; nil while it does not run
	served  chan struct{}
}

// errNotOwner is the error of records in memory that do not count any more.
var errNotOwner = errors.New("the partition belongs to another process by now")

// openOwner takes a partition that nobody owns. The error is a *[bloblog.HeldError] if
// somebody does.
func openOwner(ctx context.Context, s *share) (_ *owner, err error) {
	o := &owner{share: s, look: make(chan struct{}, 1), mailing: make(chan struct{}, 1)}
	var left *bloblog.Recovered
	if o.log, left, err = bloblog.Open(ctx, s.logConfig()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.discard()
		}
	}()
	o.over, o.end = context.WithCancel(context.Background())
	config := s.baseConfig()
	config.Commit = o.log.SetBase
	if o.base, err = runs.Open(ctx, config, left.Manifest); err != nil {
		return nil, fmt.Errorf("open partition %d: %w", s.number, err)
	}
	layer := logstore.NewLayer(partition.MailTables, left.Base)
	for _, group := range left.Groups {
		if err = layer.Replay(group.Number, group.Changes); err != nil {
			return nil, fmt.Errorf("open partition %d: %w", s.number, err)
		}
	}
	layer.Last = left.Last
	o.store = logstore.New(o.base, o.log, layer, s.hub.log)
	for to := range s.hub.shares {
		o.couriers = append(o.couriers, &courier{owner: o, to: s.hub.shares[to], mailed: s.hub.moment()})
	}
	cfg := s.readerConfig()
	cfg.Slow = true
	cfg.Opens, cfg.Crashes = left.Opens, left.Crashes
	cfg.Owns = func(id string) bool { return s.hub.share(id) == s }
	cfg.Post = func(m partition.Outgoing) {
		if m.To != "" {
			m.Partition = s.hub.numberOf(m.To)
		}
		o.couriers[m.Partition].post(m)
	}
	cfg.Readable = func() error {
		if o.isOver() {
			return errNotOwner
		}
		return nil
	}
	if o.Partition, err = partition.Open(o.store, cfg); err != nil {
		return nil, fmt.Errorf("open partition %d: %w", s.number, err)
	}
	if o.IsImported() {
		s.hub.imported.Store(true)
	}
	if o.receiver, err = s.receiverAt(o.Position()); err != nil {
		_, _ = o.Partition.Close() // err is why
		o.store.Stop()
		return nil, err
	}
	o.begin(o.receive)
	o.begin(o.sweepLater)
	go func() { // ends with the ownership
		select {
		case <-o.log.Lost():
			o.finish()
			s.lose(o)
		case <-o.over.Done():
		}
	}()
	for _, c := range o.couriers {
		c.wake()
	}
	return o, nil
}

// discard closes what openOwner has opened.
func (o *owner) discard() {
	if o.end != nil {
		o.end()
	}
	_ = o.log.Release(context.Background())
	if o.base != nil {
		_ = o.base.Close()
	}
}

// baseConfig is what the base of the partition is made with, but for Commit.
func (s *share) baseConfig() runs.Config {
	return runs.Config{
		Tables: partition.MailTables, Files: runs.Blobs(s.hub.blobs, s.prefix), Logger: s.hub.log, Cache: s.hub.cache,
		Seed: []byte(s.hub.id + s.prefix),
	}
}

// readerConfig is what a reader of the partition is made with.
func (s *share) readerConfig() partition.Config {
	cfg := s.hub.cfg
	return partition.Config{
		Name:         fmt.Sprintf("task hub %s, partition %d", cfg.TaskHub, s.number),
		DrainTimeout: cfg.DrainTimeout, AbandonDelay: cfg.AbandonDelay, MaxAbandonDelay: cfg.MaxAbandonDelay, PageSize: cfg.PageSize,
		Logger: s.hub.log,
	}
}

// receiverAt returns the receiver of the partition's mail from a stored position on.
func (s *share) receiverAt(stored []byte) (*mailbox.Receiver, error) {
	var at mailbox.Position
	if stored != nil {
		c := &logstore.Coder{Buf: stored, Reading: true}
		at.Code(c)
		if err := c.End(); err != nil {
			return nil, fmt.Errorf("open partition %d: read the position in the mailbox: %w", s.number, err)
		}
	}
	return mailbox.NewReceiver(s.mailConfig(), at), nil
}

// isOver reports whether the partition was given up or lost, or may belong to another
// process by now.
func (o *owner) isOver() bool { return o.over.Err() != nil || !o.log.Valid() }

// hasGone reports whether an error may be due to another process that has the partition by now,
// or is about to have it.
func (o *owner) hasGone(err error) bool { return o.isOver() || errors.Is(err, logstore.ErrClosed) }

// begin runs f in a goroutine that the end of the ownership waits for. It reports false if
// that has ended.
func (o *owner) begin(f func()) bool {
	o.ending.Lock()
	defer o.ending.Unlock()
	if o.over.Err() != nil {
		return false
	}
	o.tasks.Go(f)
	return true
}

// finish ends the ownership, so that nothing begins any more.
func (o *owner) finish() {
	o.ending.Lock()
	defer o.ending.Unlock()
	o.end()
}

// release gives the partition up: others can have it at once, or when its lease has run out
// if the storage does not answer.
func (o *owner) release() error {
	o.stopServing()
	_, err := o.Partition.Close() // writes what is pending
	o.finish()
	o.tasks.Wait()
	o.base.EndWork() // what is on its way there is in the log, from which the next owner takes it
	o.store.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), o.share.hub.cfg.LeaseInterval/3)
	defer cancel()
	return errors.Join(err, o.log.Release(ctx), o.base.Close())
}

// abandon ends what works on a partition that was lost.
func (o *owner) abandon() {
	o.finish()
	o.log.Abandon()
	o.base.EndWork()
	_, _ = o.Partition.Close() // it can write nothing; work in flight is the next owner's
	o.stopServing()
	o.tasks.Wait()
	o.store.Stop()
	_ = o.base.Close() // it can write nothing
}

// The pace at which an owner looks into its mailbox: fast while there is mail.
const (
	shortestLook = 10 * time.Millisecond
	busyFor      = time.Second     // after mail
	lookWithin   = 5 * time.Second // a look that takes longer is made again
)

// receive takes mail until the partition is given up or lost.
func (o *owner) receive() {
	gap, last := shortestLook, time.Now()
	for {
		began := time.Now()
		n, err := o.takeMail(o.over)
		if err != nil && o.over.Err() == nil {
			o.share.hub.log.Warn("cannot read the mail of a partition; trying again", "partition", o.share.number, "error", err)
			gap = max(2*gap, time.Second)
		} else if n > 0 {
			gap, last = shortestLook, began
			continue
		} else if time.Since(last) > busyFor {
			gap *= 2
		}
		gap = min(gap, max(o.share.hub.cfg.MaxPollingInterval, shortestLook))
		timer := time.NewTimer(gap)
		select {
		case <-timer.C:
		case <-o.look:
			timer.Stop()
		case <-o.over.Done():
			timer.Stop()
			return
		}
	}
}

// wake has the owner look into the mailbox now.
func (o *owner) wake() {
	select {
	case o.look <- struct{}{}:
	default:
	}
}

// takeMail does what the mail asks for that has come, and returns how much it was.
func (o *owner) takeMail(ctx context.Context) (int, error) {
	select {
	case o.mailing <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-o.mailing }()
	began := o.share.hub.moment()
	within, cancel := context.WithTimeout(ctx, lookWithin)
	items, err := o.receiver.Next(within)
	cancel()
	if err != nil {
		return 0, err
	}
	if len(items) == 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.drained = began
		return 0, nil
	}
	after := items[len(items)-1].After
	position := &logstore.Coder{}
	after.Code(position)
	var all []*partition.Mail
	for _, item := range items {
		m, err := partition.DecodeMail(item.Payload)
		if err != nil {
			return 0, errors.Join(err, o.readAgain()) // a newer program may know it
		}
		all = append(all, m)
	}
	if err := o.Receive(ctx, all, position.Buf); err != nil {
		return 0, errors.Join(err, o.readAgain())
	}
	return len(items), o.receiver.Done(ctx, after)
}

// readAgain goes back to the mail that was not taken.
func (o *owner) readAgain() error {
	again, err := o.share.receiverAt(o.Position())
	if err == nil {
		o.receiver = again
	}
	return err
}

// drainSince takes mail until a look into the mailbox has found it empty that began after a
// moment, or none if that is zero.
func (o *owner) drainSince(ctx context.Context, since int64) error {
	if since == 0 {
		return nil
	}
	for {
		o.mu.Lock()
		done := o.drained > since
		o.mu.Unlock()
		if done {
			return nil
		}
		if _, err := o.takeMail(ctx); err != nil {
			return err
		}
	}
}
