package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// clientMail sends the requests of this process's clients to a partition.
type clientMail struct {
	handle *partitionHandle
	sender *mailbox.Sender

	mu      sync.Mutex // protects the fields below
	last    uint64     // number of the last request
	waiting map[uint64]struct{}
	pending []*posted
	sending bool
	mailed  int64 // moment after the last mail was sent; 0 if none was
}

func (c *clientMail) lastMailed() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mailed
}

// posted is a request on its way to the mailbox.
type posted struct {
	partition.Request
	done chan error // buffered
}

// send sends a request to the partition's mailbox and returns its number. Requests that arrive
// while mail is being sent share the next mail. If ctx ends before the request is in a mail, send discards
// it. If ctx ends later, the error is an *[UncertainError], because run repeats the mail.
func (c *clientMail) send(ctx context.Context, r partition.Request) (uint64, error) {
	p := &posted{Request: r, done: make(chan error, 1)}
	chance.AwaitTurn(ctx, turn{"mail", c.handle.number}, nil)
	c.mu.Lock()
	c.last++
	p.Number = c.last
	if r.Kind != partition.RequestMessage {
		if c.waiting == nil {
			c.waiting = make(map[uint64]struct{})
		}
		c.waiting[p.Number] = struct{}{}
	}
	c.pending = append(c.pending, p)
	if !c.sending {
		c.sending = true
		go c.run(context.WithoutCancel(ctx)) // ends when no request is pending
	}
	c.mu.Unlock()
	var err error
	select {
	case err = <-p.done:
	case <-ctx.Done():
		if err = ctx.Err(); !c.discard(p) {
			err = &UncertainError{Cause: err}
		}
	}
	if err != nil {
		c.stopWaiting(p.Number)
	}
	return p.Number, err
}

// discard removes a pending request. It returns false if the request is in a mail.
func (c *clientMail) discard(p *posted) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.pending, p)
	if at < 0 {
		return false
	}
	c.pending = slices.Delete(c.pending, at, at+1)
	return true
}

// stopWaiting records that no caller waits for the answer to a request.
func (c *clientMail) stopWaiting(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, number)
}

// isIdle reports whether no request is being sent and no answer is awaited.
func (c *clientMail) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.sending && len(c.waiting) == 0
}

// isBusy reports whether more than maxWaiting requests wait to be sent.
func (c *clientMail) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > maxWaiting
}

// maxMail is the maximum size of the messages in one mail, in bytes. A single larger message is
// sent alone.
const maxMail = 1 << 20

// maxMessage is the maximum size of a message in the mail of a client, in bytes. A larger one does not fit
// into a group of the receiver's log, which also has smaller records.
const maxMessage = bloblog.MaxGroup - 1<<20

// nextMail splits the items for the next mail off a list.
func nextMail[T any](all []T, message func(T) []byte) (next, rest []T) {
	size := 0
	for i, x := range all {
		if size += len(message(x)); i > 0 && size > maxMail {
			return all[:i], all[i:]
		}
	}
	return all, nil
}

// run sends pending requests until none is left. It repeats mail with unknown result, with the same
// request numbers, until the hub is closed. So no later mail can overtake it.
func (c *clientMail) run(ctx context.Context) {
	ctx, stop := c.handle.hub.untilClosed(ctx)
	defer stop()
	for {
		c.mu.Lock()
		var all []*posted
		if all, c.pending = nextMail(c.pending, func(p *posted) []byte { return p.Message }); len(all) == 0 {
			c.sending = false
			c.mu.Unlock()
			return
		}
		m := &partition.Mail{Sender: c.handle.hub.sender, Answered: all[0].Number - 1}
		for _, p := range all {
			m.Requests = append(m.Requests, p.Request)
		}
		for number := range c.waiting {
			m.Answered = min(m.Answered, number-1)
		}
		if c.sender == nil {
			c.sender = mailbox.NewSender(c.handle.mailConfig())
		}
		c.mu.Unlock()
		err := sendMail(ctx, c.sender, m, isFinal)
		if err != nil && c.handle.hub.life.Err() != nil {
			err = &UncertainError{Cause: fmt.Errorf("%w; the requests in flight may have arrived", context.Cause(c.handle.hub.life))}
		}
		c.mu.Lock()
		c.mailed = c.handle.hub.moment()
		c.mu.Unlock()
		if err == nil {
			c.handle.announce(ctx)
		}
		for _, p := range all {
			p.done <- err
		}
	}
}

// isDamage reports whether err means damaged or missing blobs.
func isDamage(err error) bool { return errors.As(err, new(*DamageError)) }

// isFinal reports whether a client's mail fails with err instead of being retried. Errors of damaged
// or missing blobs are final. A refusal of access is final only if doubt is false: mail that may
// have arrived is retried, because later mail must not overtake it.
func isFinal(err error, doubt bool) bool {
	if isDamage(err) {
		return true
	}
	status := store.StatusOf(err)
	return !doubt && (status == http.StatusForbidden || status == http.StatusUnauthorized)
}

// neverFinal is the rule for mail between partitions: retry every error, because later mail must
// not overtake this mail.
func neverFinal(error, bool) bool { return false }

// sendMail sends mail to a mailbox. It retries until it succeeds, ctx ends, or final returns true. If an
// attempt may have arrived, the error is an *[UncertainError].
func sendMail(ctx context.Context, to *mailbox.Sender, m *partition.Mail, final func(err error, doubt bool) bool) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	label := mailbox.Label{Sender: m.Sender, First: m.Requests[0].Number, Last: m.Requests[len(m.Requests)-1].Number}
	doubt := false
	for gap := 50 * time.Millisecond; ; gap = min(2*gap, 5*time.Second) {
		err = to.Send(ctx, b, label)
		doubt = doubt || errors.Is(err, mailbox.ErrUncertain)
		if err == nil || final(err, doubt) || !pause.For(ctx, gap) {
			if err != nil && doubt {
				err = &UncertainError{Cause: err}
			}
			return err
		}
	}
}

// courier delivers the messages of one partition to another partition, in order.
type courier struct {
	owner  *owner
	to     *partitionHandle
	sender *mailbox.Sender
	mailed int64 // moment after the last mail was sent, possibly by an earlier owner

	mu      sync.Mutex // protects the fields below
	pending []partition.Outgoing
	running bool
}

// post adds a message. It does not block.
func (c *courier) post(m partition.Outgoing) {
	c.mu.Lock()
	c.pending = append(c.pending, m)
	c.mu.Unlock()
	if c.owner.Partition != nil { // while the partition is being opened, openOwner wakes all couriers later
		c.wake()
	}
}

// isIdle reports whether no message is pending or being sent.
func (c *courier) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.running && len(c.pending) == 0
}

// stored returns the number of messages that wait to be sent, and 1 for those that are being sent.
func (c *courier) stored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.pending)
	if c.running {
		n++
	}
	return n
}

func (c *courier) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) > 0 && !c.running {
		c.running = c.owner.spawn(c.run)
	}
}

// run delivers messages until none is left or the partition is released or lost.
func (c *courier) run() {
	for {
		c.mu.Lock()
		var all []partition.Outgoing
		all, c.pending = nextMail(c.pending, func(m partition.Outgoing) []byte { return m.Record })
		if len(all) == 0 || c.owner.over.Err() != nil {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		m := &partition.Mail{Sender: c.owner.handle.name()}
		for _, l := range all {
			m.Requests = append(m.Requests, partition.Request{Number: l.Number, Kind: partition.RequestMessage, Message: l.Record})
		}
		if c.deliver(m) {
			c.owner.Sent(all)
		}
	}
}

// deliver delivers mail to its partition: directly if this process owns that partition, otherwise
// through the mailbox. It reports whether the mail is durable there.
//
// Direct mail bypasses the mailbox. Mail with lower numbers that arrives later would count as
// received. So deliver first waits until the receiver has received all earlier mail of this
// partition.
func (c *courier) deliver(m *partition.Mail) bool {
	ctx := c.owner.over
	if o := c.to.owner(); o != nil && o.drainSince(ctx, c.mailed) == nil {
		if err := o.Receive(ctx, []*partition.Mail{m}, nil); err == nil {
			return true
		}
	}
	if c.sender == nil {
		c.sender = mailbox.NewSender(c.to.mailConfig())
	}
	err := sendMail(ctx, c.sender, m, neverFinal)
	c.mailed = c.to.hub.moment()
	if err != nil {
		return false
	}
	c.to.announce(ctx)
	return true
}
