package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// hold acquires all partitions, delivers their outgoing messages, receives all their mail, and calls
// f. It releases the partitions when f returns. It fails with [provider.ErrHubBusy] if a worker is running or another process owns
// a partition.
func (h *Hub) hold(ctx context.Context, f func([]*owner) error) error {
	if h.isRunning() {
		return fmt.Errorf("%s: %w", h.cfg.TaskHub, provider.ErrHubBusy)
	}
	if err := h.ensure(ctx); err != nil {
		return err
	}
	var all []*owner
	for _, s := range h.partitions {
		s.held.Add(1)
		defer func() {
			s.held.Add(-1)
			_ = s.close() // else its lease expires
		}()
		o, err := s.acquire(ctx)
		if held := (*bloblog.HeldError)(nil); errors.As(err, &held) {
			return fmt.Errorf("%w: %w", provider.ErrHubBusy, held)
		}
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	drain := func() error {
		for _, o := range all {
			if err := o.drainSince(ctx, h.moment()); err != nil {
				return err
			}
		}
		return nil
	}
	if err := drain(); err != nil { // a message to a mailbox without its blobs is never delivered
		return err
	}
	for _, o := range all { // until it is deleted, a delivered message is in two partitions
		if err := o.awaitSent(ctx); err != nil {
			return err
		}
	}
	if err := drain(); err != nil { // received mail adds no outgoing messages, because no worker runs
		return err
	}
	return f(all)
}

// awaitSent waits until all outgoing messages are delivered and deleted.
func (o *owner) awaitSent(ctx context.Context) error {
	for _, c := range o.couriers {
		for !c.isIdle() {
			if !pause.For(ctx, 5*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return o.Flush(ctx)
}

// Export implements [provider.Portable]. It fails with [ErrNoHub] if the hub does not exist.
func (h *Hub) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	if _, _, err := h.readInfo(ctx); store.IsNotFound(err) {
		return fmt.Errorf("%s: %w", h.cfg.TaskHub, ErrNoHub)
	}
	return h.hold(ctx, func(all []*owner) error {
		var parts []*partition.Partition
		for _, o := range all {
			parts = append(parts, o.Partition)
		}
		return exportAll(ctx, parts, w)
	})
}

// exportAll writes the partitions of a hub.
func exportAll(ctx context.Context, parts []*partition.Partition, w provider.HubWriter) error {
	for _, export := range []func(*partition.Partition) error{
		func(p *partition.Partition) error { return p.ExportInstances(ctx, w) },
		func(p *partition.Partition) error { return p.ExportActivities(ctx, w) },
		func(p *partition.Partition) error { return p.ExportMessages(ctx, w) },
	} {
		for _, p := range parts {
			if err := export(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Totals implements [provider.Portable].
func (h *Hub) Totals(ctx context.Context) (sum provider.Totals, err error) {
	err = h.hold(ctx, func(all []*owner) error {
		for _, o := range all {
			t, err := o.Totals(ctx)
			if err != nil {
				return err
			}
			sum.Instances += t.Instances
			sum.Events += t.Events
			sum.Activities += t.Activities
			sum.Messages += t.Messages
		}
		return nil
	})
	return sum, err
}

// Import implements [provider.Portable].
func (h *Hub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	return h.hold(ctx, func(all []*owner) error {
		im := importer{hub: h}
		for _, o := range all {
			empty, err := o.IsEmpty()
			if err != nil {
				return err
			}
			if !empty {
				return fmt.Errorf("%s: %w", h.cfg.TaskHub, provider.ErrHubNotEmpty)
			}
			im.parts = append(im.parts, partition.NewImporter(o.Partition))
		}
		h.imported.Store(true)
		for _, o := range all {
			if err := o.SetImported(ctx); err != nil {
				return err
			}
		}
		if err := fill(im); err != nil {
			return err
		}
		for _, part := range im.parts {
			if err := part.Flush(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// importer writes each record to its partition.
type importer struct {
	hub   *Hub
	parts []*partition.Importer
}

func (im importer) of(id string) *partition.Importer { return im.parts[im.hub.numberOf(id)] }

// Instance implements [provider.HubWriter].
func (im importer) Instance(ctx context.Context, state *provider.InstanceState, past []history.Event) error {
	return im.of(state.Instance.InstanceID).Instance(ctx, state, past)
}

// Activity implements [provider.HubWriter].
func (im importer) Activity(ctx context.Context, task provider.TaskMessage) error {
	return im.of(task.Target.InstanceID).Activity(ctx, task)
}

// Message implements [provider.HubWriter].
func (im importer) Message(ctx context.Context, msg provider.TaskMessage) error {
	return im.of(msg.Target.InstanceID).Message(ctx, msg)
}
