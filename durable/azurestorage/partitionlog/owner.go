package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
)

// owner is a partition that this process owns.
type owner struct {
	*partition.Partition
	handle *partitionHandle
	log    *bloblog.Log
	base   *runs.Base
	store  *logstore.Store

	over     context.Context // ends when the partition is released or lost
	end      context.CancelFunc
	ending   sync.Mutex // held by begin and finish
	tasks    sync.WaitGroup
	couriers []*courier  // indexed by destination partition
	borrowed atomic.Bool // acquired for a client

	opened   int64             // moment of opening
	receiver *mailbox.Receiver // used by receive
	pollNow  chan struct{}     // makes receive poll the mailbox now

	mu          sync.Mutex // protects the fields below
	drained     int64      // all mail that was in the mailbox at this moment has been received
	currentPoll *mailPoll
	serving     context.CancelFunc // ends Run; nil if it does not run
	served      chan struct{}
}

// mailPoll is one poll of the mailbox.
type mailPoll struct {
	begun bool          // guarded by owner.mu
	over  chan struct{} // closed at the end of the poll
	err   error         // result of the poll; set before over is closed
}

// errNotOwner is returned for records in memory that may be outdated.
var errNotOwner = errors.New("another process may own the partition now")

// openOwner acquires a partition and opens it. If another process owns it, the error is a
// *[bloblog.HeldError].
func openOwner(ctx context.Context, s *partitionHandle) (_ *owner, err error) {
	o := &owner{handle: s, pollNow: make(chan struct{}, 1), currentPoll: &mailPoll{over: make(chan struct{})}}
	var left *bloblog.Recovered
	if o.log, left, err = bloblog.Open(ctx, s.logConfig()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.discard(context.WithoutCancel(ctx))
		}
	}()
	o.over, o.end = context.WithCancel(context.WithoutCancel(ctx))
	config := s.baseConfig()
	config.Commit = o.log.SetBase
	if o.base, err = runs.Open(ctx, config, left.Manifest); err != nil {
		return nil, fmt.Errorf("open partition %d: %w", s.number, err)
	}
	recent, err := namedBy(left.Recent)
	if err != nil {
		return nil, fmt.Errorf("open partition %d: %w", s.number, err)
	}
	layer, err := layerOf(left.Base, left.Groups)
	if err != nil {
		return nil, fmt.Errorf("open partition %d: %w", s.number, err)
	}
	layer.Last = left.Last
	o.store = logstore.New(o.base, o.log, layer, s.hub.log)
	for to := range s.hub.partitions {
		o.couriers = append(o.couriers, &courier{owner: o, to: s.hub.partitions[to], mailed: s.hub.moment()})
	}
	cfg := s.readerConfig()
	cfg.HighLatency = true
	cfg.OpenCount, cfg.CrashCount = left.OpenCount, left.CrashCount
	cfg.Owns = func(id string) bool { return s.hub.partitionOf(id) == s }
	cfg.Post = func(m partition.Outgoing) {
		if m.To != "" {
			m.Partition = s.hub.numberOf(m.To)
		}
		o.couriers[m.Partition].post(m)
	}
	cfg.Readable = func() error {
		if o.hasEnded() {
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
		_, _ = o.Partition.Close() // err is returned instead
		o.store.Stop()
		return nil, err
	}
	o.opened = s.hub.moment()
	o.spawn(o.receive)
	o.spawn(func() { o.sweepAll(recent) })
	o.spawn(o.removeIdleClients)
	go func() { // ends with the ownership
		select {
		case <-o.log.Lost():
			o.finish()
			s.closeLost(o)
		case <-o.over.Done():
		}
	}()
	for _, c := range o.couriers {
		c.wake()
	}
	return o, nil
}

// outgoing returns the number of messages that are not sent yet, at least 1 while messages are being sent.
func (o *owner) outgoing() (n int) {
	for _, c := range o.couriers {
		n += c.stored()
	}
	return n
}

// discard releases the log and closes the base after openOwner has failed.
func (o *owner) discard(ctx context.Context) {
	if o.end != nil {
		o.end()
	}
	_ = o.log.Release(ctx)
	if o.base != nil {
		_ = o.base.Close()
	}
}

// baseConfig returns the configuration of the partition's base, without Commit.
func (s *partitionHandle) baseConfig() runs.Config {
	return runs.Config{
		Tables: partition.MailTables, Files: runs.Blobs(s.hub.blobs, s.prefix), Logger: s.hub.log, Cache: s.hub.cache,
		Seed: []byte(s.hub.id + s.prefix),
	}
}

// readerConfig returns the configuration of a reader of the partition.
func (s *partitionHandle) readerConfig() partition.Config {
	cfg := s.hub.cfg
	return partition.Config{
		Name:         fmt.Sprintf("task hub %s, partition %d", cfg.TaskHub, s.number),
		DrainTimeout: cfg.DrainTimeout, AbandonDelay: cfg.AbandonDelay, MaxAbandonDelay: cfg.MaxAbandonDelay, PageSize: cfg.PageSize,
		Logger: s.hub.log,
		Error:  s.unreadable,
	}
}

// receiverAt returns a receiver of the partition's mail that starts at a stored position.
func (s *partitionHandle) receiverAt(stored []byte) (*mailbox.Receiver, error) {
	at, err := positionOf(stored)
	if err != nil {
		return nil, fmt.Errorf("open partition %d: %w", s.number, err)
	}
	return mailbox.NewReceiver(s.mailConfig(), at), nil
}

// positionOf decodes a stored mailbox position. Nil is the start of the mailbox.
func positionOf(stored []byte) (at mailbox.Position, err error) {
	if stored == nil {
		return at, nil
	}
	c := &logstore.Coder{Buf: stored, Reading: true}
	at.Code(c)
	if err := c.End(); err != nil {
		return at, fmt.Errorf("read the position in the mailbox: %w", err)
	}
	return at, nil
}

// hasEnded reports whether the partition was released or lost, or the lease may have expired.
func (o *owner) hasEnded() bool { return o.over.Err() != nil || !o.log.IsValid() }

// isEnd reports whether err may be caused by the end of the ownership.
func (o *owner) isEnd(err error) bool { return o.hasEnded() || errors.Is(err, logstore.ErrClosed) }

// spawn runs f in a goroutine that finishes before the partition is released. It returns false if
// the ownership has ended.
func (o *owner) spawn(f func()) bool {
	o.ending.Lock()
	defer o.ending.Unlock()
	if o.over.Err() != nil {
		return false
	}
	o.tasks.Go(f)
	return true
}

// finish ends the ownership. begin starts no goroutine after it.
func (o *owner) finish() {
	o.ending.Lock()
	defer o.ending.Unlock()
	o.end()
}

// release releases the partition. Another process can acquire it at once, or after the lease has
// expired if the storage does not answer.
func (o *owner) release() error {
	o.stopServing()
	_, err := o.Partition.Close() // writes pending changes
	o.finish()
	o.tasks.Wait()
	o.base.CancelWork() // unfinished base writes are still in the log, where the next owner finds them
	o.store.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.over), o.handle.hub.cfg.LeaseInterval/3)
	defer cancel()
	return errors.Join(err, o.log.Release(ctx), o.base.Close())
}

// abandon stops the tasks of a lost partition.
func (o *owner) abandon() {
	o.finish()
	o.log.Abandon()
	o.base.CancelWork()
	_, _ = o.Partition.Close() // it can write nothing; the next owner repeats the work in flight
	o.stopServing()
	o.tasks.Wait()
	o.store.Stop()
	_ = o.base.Close() // it can write nothing
}

// Intervals at which an owner polls its mailbox.
const (
	minPollInterval = 10 * time.Millisecond
	busyFor         = time.Second // time of fast polling after mail
	// idleAfter is the time without mail and work after which an owner is idle. An idle owner polls
	// every idlePollInterval, and when a sender rings the bell.
	idleAfter        = 30 * time.Second
	idlePollInterval = 30 * time.Second
	// pollTimeout limits how long a poll waits for its first bytes. After a failed poll, the next
	// limit is twice the duration of that poll, at least pollTimeout and at most maxPollTimeout.
	pollTimeout    = 5 * time.Second
	maxPollTimeout = time.Minute
)

// receive polls the mailbox and processes mail until the partition is released or lost.
func (o *owner) receive() {
	gap, last, within := minPollInterval, time.Now(), pollTimeout
	worked, newest := last, o.store.Newest()
	for {
		began := time.Now()
		o.beginPoll()
		took, err := o.receiveMail(within)
		o.finishPoll(err)
		within = pollTimeout
		if o.over.Err() == nil {
			o.handle.recordMailRead(err)
		}
		switch {
		case err != nil && o.over.Err() == nil:
			gap = max(2*gap, time.Second)
			within = min(max(2*time.Since(began), pollTimeout), maxPollTimeout)
		case took:
			gap, last, worked = minPollInterval, began, began
			continue
		case time.Since(last) > busyFor:
			gap *= 2
		}
		if n := o.store.Newest(); n != newest {
			worked, newest = began, n
		}
		gap = min(gap, o.maxPollInterval(worked))
		if !o.awaitPoll(gap, newest) {
			return
		}
	}
}

// maxPollInterval returns the maximum time until the next poll. worked is the time of the owner's
// last mail or work. Only workers listen to the bell, so other processes keep polling often.
func (o *owner) maxPollInterval(worked time.Time) time.Duration {
	most := max(o.handle.hub.cfg.MaxPollingInterval, minPollInterval)
	if time.Since(worked) > idleAfter && o.handle.hub.isRunning() {
		most = max(most, idlePollInterval)
	}
	return most
}

// awaitPoll waits until the next poll is due: after gap, when wake is called, or when the partition
// has changes after group newest. It returns false if the ownership has ended.
func (o *owner) awaitPoll(gap time.Duration, newest uint64) bool {
	for due := time.Now().Add(gap); ; {
		timer := time.NewTimer(min(time.Until(due), max(o.handle.hub.cfg.MaxPollingInterval, minPollInterval)))
		select {
		case <-timer.C:
			if !time.Now().Before(due) || o.store.Newest() != newest {
				return true
			}
		case <-o.pollNow:
			timer.Stop()
			return true
		case <-o.over.Done():
			timer.Stop()
			return false
		}
	}
}

// beginPoll begins the next poll, which serves all earlier calls of wake.
func (o *owner) beginPoll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.currentPoll.begun = true
	select {
	case <-o.pollNow:
	default:
	}
}

// finishPoll completes the current poll with its result and prepares the next one.
func (o *owner) finishPoll(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.currentPoll.err = err
	close(o.currentPoll.over)
	o.currentPoll = &mailPoll{over: make(chan struct{})}
}

// wake makes the owner poll its mailbox now.
func (o *owner) wake() {
	select {
	case o.pollNow <- struct{}{}:
	default:
	}
}

// receiveMail processes new mail and reports whether it downloaded any. patience limits the wait
// for the first bytes.
func (o *owner) receiveMail(patience time.Duration) (took bool, err error) {
	ctx, cancel := context.WithTimeout(o.over, patience)
	batch, err := o.receiver.Next(ctx, o.handle.hub.moment())
	cancel()
	if err != nil {
		return false, err
	}
	if len(batch.Items) > 0 {
		if err := o.receiveAll(batch.Items); err != nil {
			return false, errors.Join(err, o.readAgain())
		}
	}
	if batch.Seen > 0 {
		o.mu.Lock()
		o.drained = batch.Seen
		o.mu.Unlock()
	}
	if len(batch.Items) > 0 {
		err = o.receiver.DeleteUpTo(o.over, batch.Items[len(batch.Items)-1].End)
	}
	return batch.Read > 0 || len(batch.Items) > 0, err
}

// errUnknownMail is the error of mail that cannot be decoded. A newer version may have sent it.
var errUnknownMail = errors.New("unknown kind of mail; a newer version may have sent it")

// receiveAll processes mail and stores the new mailbox position with the effects.
func (o *owner) receiveAll(items []mailbox.Item) error {
	position := &logstore.Coder{}
	items[len(items)-1].End.Code(position)
	var all []*partition.Mail
	for _, item := range items {
		if item.Missing != nil {
			o.reportMissing(*item.Missing)
			continue
		}
		if item.MayBeDuplicate {
			known, err := o.knowsSender(item.Payload)
			if err != nil {
				return err
			}
			if !known {
				continue
			}
		}
		m, err := partition.DecodeMail(item.Payload)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnknownMail, err)
		}
		all = append(all, m)
	}
	return o.Receive(o.over, all, position.Buf)
}

// knowsSender reports whether the partition recognizes the requests that it has received from the
// mail's sender. The mail may have been received before. Clients that sent nothing for a day are
// forgotten, so the mail of an unknown client is skipped. Partitions are never forgotten.
func (o *owner) knowsSender(payload []byte) (bool, error) {
	m, err := partition.DecodeMail(payload)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnknownMail, err)
	}
	if !partition.IsClient(m.Sender) {
		return true, nil
	}
	last, err := o.Received(m.Sender)
	if err == nil && last == 0 {
		o.handle.hub.log.Error("skipping mail: it may have been received before, and its sender is unknown", "partition", o.handle.number,
			"sender", m.Sender, "requests", len(m.Requests))
	}
	return last > 0, err
}

// reportMissing logs a missing letter unless its requests were received before.
func (o *owner) reportMissing(l mailbox.Label) {
	if last, err := o.Received(l.Sender); err == nil && last >= l.Last {
		return
	}
	o.handle.hub.log.Error("mail is lost: the blob with its requests is missing",
		"partition", o.handle.number, "sender", l.Sender, "firstRequest", l.First, "lastRequest", l.Last)
}

// readAgain returns to the stored position, so that the next poll reads the unprocessed mail again.
func (o *owner) readAgain() error {
	again, err := o.handle.receiverAt(o.Position())
	if err == nil {
		o.receiver = again
	}
	return err
}

// drainSince waits until the owner has received all mail that was in the mailbox at the moment
// since. It returns immediately if since is 0.
func (o *owner) drainSince(ctx context.Context, since int64) error {
	if since == 0 {
		return nil
	}
	for {
		o.mu.Lock()
		done, poll := o.drained > since, o.currentPoll
		if !done && !poll.begun { // otherwise the wake would start one poll more
			o.wake()
		}
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-poll.over:
			if poll.err != nil {
				return poll.err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-o.over.Done():
			return errNotOwner
		}
	}
}

// isDirect reports whether a client's request may bypass the mailbox. For this, the owner must have
// received two kinds of mail: the mail that this process sent before the moment mailed, and the
// mail that was in the mailbox when the partition was opened. If the mailbox is unreadable until an
// operator acts, only mail of this process prevents direct requests.
func (o *owner) isDirect(ctx context.Context, mailed int64) bool {
	err := o.drainSince(ctx, max(o.opened, mailed))
	unreadable := errors.Is(err, errUnknownMail) || errors.As(err, new(*chain.DamageError))
	return err == nil || unreadable && mailed == 0
}
