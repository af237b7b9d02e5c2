package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// clientMail sends a partition the requests of clients of this process.
type clientMail struct {
	share  *share
	sender *mailbox.Sender

	mu      sync.Mutex // protects the following
	last    uint64     // the number of the last request
	waiting map[uint64]struct{}
	pending []*posted
	sending bool
	mailed  int64 // the moment after mail was last put into the mailbox; zero if never
}

func (c *clientMail) lastMailed() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mailed
}

// posted is a request on its way to the mailbox.
type posted struct {
	partition.Request
	done chan error // has room for one
}

// send puts a request into the partition's mailbox, and returns its number. What is asked
// while mail is on its way shares the next one.
func (c *clientMail) send(ctx context.Context, r partition.Request) (uint64, error) {
	p := &posted{Request: r, done: make(chan error, 1)}
	chance.TakeTurn(ctx, turn{"mail", c.share.number}, nil)
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
		go c.run(context.WithoutCancel(ctx)) // ends when nothing is left
	}
	c.mu.Unlock()
	select {
	case err := <-p.done:
		if err != nil {
			c.answered(p.Number)
		}
		return p.Number, err
	case <-ctx.Done():
		c.answered(p.Number)
		return 0, ctx.Err()
	}
}

// answered notes that nobody waits for the answer to a request any more.
func (c *clientMail) answered(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, number)
}

// isIdle reports whether nothing is on its way and no answer is awaited.
func (c *clientMail) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.sending && len(c.waiting) == 0
}

// isBusy reports whether so much waits to be sent that clients should come later.
func (c *clientMail) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > maxWaiting
}

// maxMail bounds the bytes of messages in one mail, but for the first.
const maxMail = 1 << 20

// nextMail cuts what goes into the next mail from a list of what holds messages.
func nextMail[T any](all []T, message func(T) []byte) (next, rest []T) {
	size := 0
	for i, x := range all {
		if size += len(message(x)); i > 0 && size > maxMail {
			return all[:i], all[i:]
		}
	}
	return all, nil
}

// run sends what is pending until nothing is left. Mail that may or may not have arrived is
// sent again under the same numbers until the hub is closed, so that no later one passes it.
func (c *clientMail) run(ctx context.Context) {
	ctx, stop := c.share.hub.untilClosed(ctx)
	defer stop()
	for {
		c.mu.Lock()
		var all []*posted
		if all, c.pending = nextMail(c.pending, func(p *posted) []byte { return p.Message }); len(all) == 0 {
			c.sending = false
			c.mu.Unlock()
			return
		}
		m := &partition.Mail{Sender: c.share.hub.sender, Answered: all[0].Number - 1}
		for _, p := range all {
			m.Requests = append(m.Requests, p.Request)
		}
		for number := range c.waiting {
			m.Answered = min(m.Answered, number-1)
		}
		if c.sender == nil {
			c.sender = mailbox.NewSender(c.share.mailConfig())
		}
		c.mu.Unlock()
		err := sendMail(ctx, c.sender, m, isFinal)
		if err != nil && c.share.hub.life.Err() != nil {
			err = fmt.Errorf("%w; what it was sending may have arrived", context.Cause(c.share.hub.life))
		}
		c.mu.Lock()
		c.mailed = c.share.hub.moment()
		c.mu.Unlock()
		if err == nil {
			c.share.announce(ctx)
		}
		for _, p := range all {
			p.done <- err
		}
	}
}

// isDamage reports whether err says that blobs are damaged or missing.
func isDamage(err error) bool { return errors.As(err, new(*DamageError)) }

// isFinal reports whether a client gives up after an error of its mail: blobs are damaged or
// missing, or the account refuses access and no attempt is in doubt. Mail in doubt may arrive, and no
// later mail may pass it.
func isFinal(err error, doubt bool) bool {
	if isDamage(err) {
		return true
	}
	status := store.StatusOf(err)
	return !doubt && (status == http.StatusForbidden || status == http.StatusUnauthorized)
}

// never is the rule of couriers between partitions: no later mail may pass the mail.
func never(error, bool) bool { return false }

// sendMail puts mail into a mailbox. It tries until it succeeds, ctx ends, or an error is final.
func sendMail(ctx context.Context, to *mailbox.Sender, m *partition.Mail, final func(err error, doubt bool) bool) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	label := mailbox.Label{Sender: m.Sender, First: m.Requests[0].Number, Last: m.Requests[len(m.Requests)-1].Number}
	doubt := false
	for gap := 50 * time.Millisecond; ; gap = min(2*gap, 5*time.Second) {
		err = to.Send(ctx, b, label)
		doubt = doubt || errors.Is(err, mailbox.ErrDoubt)
		if err == nil || final(err, doubt) || !pause.For(ctx, gap) {
			return err
		}
	}
}

// courier brings the outgoing messages of a partition to one other, in order.
type courier struct {
	owner  *owner
	to     *share
	sender *mailbox.Sender
	mailed int64 // the moment after mail was last put into the mailbox, by an earlier owner maybe

	mu      sync.Mutex // protects the following
	pending []partition.Outgoing
	going   bool
}

// post adds a message. It does not block.
func (c *courier) post(m partition.Outgoing) {
	c.mu.Lock()
	c.pending = append(c.pending, m)
	c.mu.Unlock()
	if c.owner.Partition != nil { // else it is being opened, and wakes all
		c.wake()
	}
}

// isIdle reports whether there are no messages, and none is on its way.
func (c *courier) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.going && len(c.pending) == 0
}

func (c *courier) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) > 0 && !c.going {
		c.going = c.owner.begin(c.run)
	}
}

// run brings messages until none is left or the partition is given up or lost.
func (c *courier) run() {
	for {
		c.mu.Lock()
		var all []partition.Outgoing
		all, c.pending = nextMail(c.pending, func(m partition.Outgoing) []byte { return m.Record })
		if len(all) == 0 || c.owner.over.Err() != nil {
			c.going = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		m := &partition.Mail{Sender: c.owner.share.name()}
		for _, l := range all {
			m.Requests = append(m.Requests, partition.Request{Number: l.Number, Kind: partition.RequestMessage, Message: l.Record})
		}
		if c.bring(m) {
			c.owner.Sent(all)
		}
	}
}

// bring gives mail to its partition: direct, if this process owns that, too, else by the
// mailbox. It reports whether the mail is safe there.
//
// Direct mail passes what is in the mailbox, and what comes later under lower numbers counts
// as received before. So the mailbox must be empty of what this partition has sent before.
func (c *courier) bring(m *partition.Mail) bool {
	ctx := c.owner.over
	if o := c.to.owner(); o != nil && o.drainSince(ctx, c.mailed) == nil {
		if err := o.Receive(ctx, []*partition.Mail{m}, nil); err == nil {
			return true
		}
	}
	if c.sender == nil {
		c.sender = mailbox.NewSender(c.to.mailConfig())
	}
	err := sendMail(ctx, c.sender, m, never)
	c.mailed = c.to.hub.moment()
	if err != nil {
		return false
	}
	c.to.announce(ctx)
	return true
}
