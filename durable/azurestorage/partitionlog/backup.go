package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A backup of a running hub needs a consistent cut: a prefix of each log. Each message that a
// partition has received must be in the prefix of its sender. Each message that was sent must be
// received, in a mailbox, or still to be sent. No worker stops for the backup. It reads all
// partitions four times:
//
// 1. the logs, with the messages that are still to be sent
// 2. the mailboxes, from the positions in these logs on
// 3. the groups appended to the logs since read 1
// 4. the groups appended since read 3; the backup uses only those that the rule below requires
//
// No message is lost. Consider a message that was sent before read 1 and is not among the messages
// to be sent. It was in the mailbox before read 2, or was received before read 3. A later message
// is in a group of read 3 or 4. The backup keeps it even if a later group says that it was sent.
//
// No message arrives before it is sent. A partition can receive before read 3 a message that its
// sender sends after the sender's read 3. The prefix of the sender then grows up to that message
// (see [cut.grow]). The message was sent before read 4, so read 4 contains it. The other groups
// that the prefix gains precede the message, so this ends. The mail of read 2 was sent before
// read 3.
//
// Reads 1 and 2 contain everything that was acknowledged before the backup started.

// cut is the state of a partition up to a certain group.
type cut struct {
	*followed
	handle  *partitionHandle
	letters []partition.Outgoing // messages to be sent at read 1 or later, by ascending number
	mail    []mailbox.Item
	later   []bloblog.Frame // groups of read 4
}

// cutAttempts limits the attempts to read a cut.
const cutAttempts = 10

// ExportRunning is Export for a hub that workers and clients are using. It writes everything that
// was acknowledged before it started, each message once. Later requests may be included. It delays
// no worker. It writes only the end frame of a full mailbox blob that has none. It fails with [ErrNoHub] if the hub does not exist. It also fails
// if workers delete replaced base files before it has read them.
func (h *Hub) ExportRunning(ctx context.Context, w provider.HubWriter) error {
	if _, _, err := h.readInfo(ctx); store.IsNotFound(err) {
		return fmt.Errorf("%s: %w", h.cfg.TaskHub, ErrNoHub)
	}
	if err := h.ensure(ctx); err != nil {
		return err
	}
	var cuts []*cut
	var err error
	for attempt := 1; ; attempt++ {
		cuts, err = h.cut(ctx)
		if err == nil || attempt == cutAttempts || !mayPass(err) {
			break
		}
		closeAll(cuts)
	}
	defer closeAll(cuts)
	if err == nil {
		err = exportCuts(ctx, cuts, w)
	}
	if errors.Is(err, runs.ErrGone) {
		err = fmt.Errorf("workers replaced files before the backup had read them; repeat it when there is less load: %w", err)
	}
	return err
}

// mayPass reports whether another attempt may succeed after err.
func mayPass(err error) bool {
	return errors.Is(err, bloblog.ErrReopen) || errors.Is(err, runs.ErrGone) || isDamage(err)
}

func closeAll(cuts []*cut) {
	for _, c := range cuts {
		_ = c.base.Close() // it was only read
	}
}

// cut returns a consistent cut. The caller must close the returned cuts, even if there is an error.
func (h *Hub) cut(ctx context.Context) (cuts []*cut, err error) {
	for _, s := range h.partitions {
		v, err := s.follow(ctx)
		if errors.Is(err, bloblog.ErrNoLog) { // the partition was never opened
			if err = s.borrow(ctx); err == nil {
				v, err = s.follow(ctx)
			}
		}
		if err != nil {
			return cuts, err
		}
		c := &cut{followed: v, handle: s}
		cuts = append(cuts, c)
		if c.letters, err = v.reader.Outgoing(); err != nil {
			return cuts, err
		}
	}
	for _, c := range cuts {
		if err := c.readMail(ctx); err != nil {
			return cuts, err
		}
	}
	for _, c := range cuts {
		groups, err := c.next(ctx)
		if err != nil {
			return cuts, err
		}
		for _, g := range groups {
			if err := c.add(g); err != nil {
				return cuts, err
			}
		}
	}
	for _, c := range cuts {
		if c.later, err = c.next(ctx); err != nil {
			return cuts, err
		}
	}
	for grows := true; grows; {
		grows = false
		for _, c := range cuts {
			grew, err := c.grow(cuts)
			if err != nil {
				return cuts, err
			}
			grows = grows || grew
		}
	}
	return cuts, nil
}

// readMail reads the mail that the partition had not received at read 1.
func (c *cut) readMail(ctx context.Context) error {
	stored, err := c.reader.MailPosition()
	if err != nil {
		return err
	}
	r, err := c.handle.receiverAt(stored)
	if err != nil {
		return err
	}
	for {
		batch, err := r.Next(ctx, c.handle.hub.moment())
		if err != nil {
			return err
		}
		c.mail = append(c.mail, batch.Items...)
		if batch.Seen > 0 {
			return nil
		}
	}
}

// next returns the groups appended to the log since the previous read. The base does not change.
func (c *cut) next(ctx context.Context) ([]bloblog.Frame, error) {
	frames, err := c.log.Next(ctx)
	return slices.DeleteFunc(frames, func(f bloblog.Frame) bool { return f.Manifest != nil }), err
}

// add extends the prefix of the log by a group.
func (c *cut) add(g bloblog.Frame) error {
	sent, err := sentIn(g)
	if err != nil {
		return err
	}
	c.letters = append(c.letters, sent...)
	c.groups = append(c.groups, g)
	return c.store.Replay(g.Number, g.Changes)
}

// sentIn returns the messages for other partitions in a group.
func sentIn(g bloblog.Frame) ([]partition.Outgoing, error) {
	layer, err := layerOf(0, []bloblog.Frame{g})
	if err != nil {
		return nil, err
	}
	return partition.OutgoingIn(layer)
}

// grow adds the groups of read 4 that contain messages which other partitions have received. It
// reports whether it added any.
func (c *cut) grow(all []*cut) (grew bool, err error) {
	if len(c.later) == 0 {
		return false, nil
	}
	required := uint64(0) // highest number that a partition has received from this one
	for _, to := range all {
		last, err := to.reader.Received(c.handle.name())
		if err != nil {
			return false, err
		}
		required = max(required, last)
	}
	through := 0
	for i, g := range c.later {
		sent, err := sentIn(g)
		if err != nil {
			return false, err
		}
		if len(sent) > 0 && sent[0].Number <= required {
			through = i + 1
		}
	}
	for _, g := range c.later[:through] {
		if err := c.add(g); err != nil {
			return false, err
		}
	}
	c.later = c.later[through:]
	return through > 0, nil
}

// noLog is the log of a partition in memory. It stores nothing.
type noLog struct{}

func (noLog) Append(uint64, logstore.Parts) error { return nil }
func (noLog) Size() int64                         { return 0 }
func (noLog) Rotate()                             {}
func (noLog) Reserve(int64) error                 { return nil }
func (noLog) Close(bool) error                    { return nil }

// open opens the partition at the cut in memory. It also returns a function that closes it.
func (c *cut) open() (_ *partition.Partition, closes func(), err error) {
	layer, err := layerOf(0, c.groups)
	if err != nil {
		return nil, nil, err
	}
	h := c.handle.hub
	cfg := c.handle.readerConfig()
	cfg.OpenCount = partition.MaxOpenCount // new messages get higher numbers than those in the log
	cfg.CrashCount = 1 << 40               // any count in the log is valid; only the deliveries of an owner need it
	cfg.Owns = func(id string) bool { return h.partitionOf(id) == c.handle }
	cfg.Post = func(partition.Outgoing) {} // c.letters contains it
	s := logstore.New(c.base, noLog{}, layer, h.log)
	p, err := partition.Open(s, cfg)
	return p, func() {
		_, _ = p.Close() // nothing is kept
		s.Stop()
	}, err
}

// exportCuts writes a consistent cut.
func exportCuts(ctx context.Context, cuts []*cut, w provider.HubWriter) error {
	var parts []*partition.Partition
	for _, c := range cuts {
		p, closes, err := c.open()
		if err != nil {
			return err
		}
		defer closes()
		parts = append(parts, p)
	}
	for n, c := range cuts {
		if err := c.deliver(ctx, parts[n]); err != nil {
			return err
		}
	}
	for n, c := range cuts {
		if err := c.send(ctx, parts); err != nil {
			return err
		}
		parts[n].Sent(c.letters)
		if err := parts[n].Flush(ctx); err != nil {
			return err
		}
	}
	return exportAll(ctx, parts, w)
}

// deliver makes the partition receive the mail of its mailbox. Mail that it has received before has
// no effect.
func (c *cut) deliver(ctx context.Context, p *partition.Partition) error {
	for _, item := range c.mail {
		if item.Missing != nil { // the owner has received it or has logged its loss
			continue
		}
		m, err := partition.DecodeMail(item.Payload)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnknownMail, err)
		}
		if err := p.Receive(ctx, []*partition.Mail{m}, nil); err != nil {
			return err
		}
	}
	return nil
}

// send delivers the letters to their partitions. Letters that were received before have no effect.
func (c *cut) send(ctx context.Context, parts []*partition.Partition) error {
	for _, l := range c.letters {
		to := l.Partition
		if l.To != "" {
			to = c.handle.hub.numberOf(l.To)
		}
		m := &partition.Mail{Sender: c.handle.name(), Requests: []partition.Request{{Number: l.Number, Kind: partition.RequestMessage, Message: l.Record}}}
		if err := parts[to].Receive(ctx, []*partition.Mail{m}, nil); err != nil {
			return err
		}
	}
	return nil
}
