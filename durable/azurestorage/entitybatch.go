package azurestorage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// What a batch of an entity sends is put into its queue hidden, before the state is
// stored that the batch comes to, and shown after it. A process that dies in between
// lets it come to light by itself: so a .NET worker that takes the entity over, which
// knows nothing of what is yet to be sent, need not send it.
//
// What comes to light by itself names its batch, which .NET ignores. A receiver of ours
// asks the entity's sentinel whether the batch counted. What was handed over in memory,
// or shown, did.

// A run is the batches with messages that one worker does of an entity one after the
// other, from when it reads the history until one of them fails. All of its batches
// counted that have no greater number than the last of them that did. So what a batch
// sent that did not count is known for what it is when it comes to light, however many
// have followed.

// batchesAfter returns the batches that count once a checkpoint does, and whether it is
// one of them.
func (s *session) batchesAfter(cp *provider.Checkpoint) (b wire.EntityBatches, isOne bool) {
	b = wire.ParseEntityBatches(s.loaded.Batches)
	if !cp.SendLast || len(cp.Messages) == 0 {
		return b, false
	}
	if s.loaded.Run == "" {
		s.loaded.Run = fmt.Sprintf("%08x", rand.Uint32())
	}
	return b.Next(s.loaded.Run), true
}

// show lets what a batch has put hidden be seen, and no more be asked for: the batch
// counts. It fails for what others may have received before, and deleted since it did not
// count yet: what the batch took comes again then, and its messages are sent again.
func (h *TaskHub) show(ctx context.Context, sent []sentMessage) error {
	var group errgroup.Group
	group.SetLimit(store.MessagesAtOnce)
	for i := range sent {
		m := &sent[i]
		switch {
		case m.shown == "":
		case m.claimed != nil && anyLost([]*delivery{m.claimed}):
			group.Go(func() error {
				return fmt.Errorf("message %s was visible in queue %s before the entity's batch counted", m.ID, m.queue.Name)
			})
		case m.claimed != nil:
			m.claimed.mu.Lock()
			m.claimed.msg.Text = m.shown // with the next change of the message
			m.claimed.mu.Unlock()
		default:
			group.Go(func() error {
				hidden := store.Message{ID: m.ID, Receipt: m.Receipt, Text: m.shown}
				_, err := m.queue.Update(ctx, hidden, visibilityDelay(m.message, time.Now()))
				return err
			})
		}
	}
	return group.Wait()
}

// believe reports whether a message that was received is to be passed on. One that came
// to light by itself, of a batch that did not count, is deleted.
//
// A batch of an entity that was purged since does not count, either. What it took was not
// deleted, since that comes after its messages are shown: it comes again, and the entity
// that begins anew answers it, as if it had been purged before.
func (p *partition) believe(r *reading, d *delivery) bool {
	if d.env.Batch == "" || d.env.Sender == nil {
		return true
	}
	h := p.hub
	sentinel, err := h.instances.Histories.Row(r.work, d.env.Sender.InstanceID, wire.SentinelRowKey)
	if err != nil {
		d.abandon(r.work, "it cannot be found out whether the entity's batch counted that sent it: "+err.Error())
		return false
	}
	var counted wire.EntityBatches
	if sentinel != nil && sentinel.Columns != nil {
		counted = wire.ParseEntityBatches(sentinel.Columns.EntityBatches)
	}
	if counted.Counted(d.env.Batch) {
		return true
	}
	h.log.Info("DiscardingWorkItem", d.attrs("details", "the entity's batch that sent it did not count")...)
	if err := d.remove(r.work); err != nil {
		h.log.Warn("message could not be deleted, it comes back by itself", d.attrs("error", err)...)
	}
	return false
}
