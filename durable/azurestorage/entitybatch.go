package azurestorage

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// What a batch of an entity sends is put into its queue hidden, before the state is
// stored that the batch comes to, and shown after it. A process that dies in between
// lets it come to light by itself: so a .NET worker that takes the entity over, which
// knows nothing of what is yet to be sent, need not send it.
//
// What comes to light by itself names its batch, which .NET ignores. A receiver of ours
// asks the entity's sentinel whether the batch counted. What was handed over in memory,
// or shown, did.

// batchesColumn is the column of an entity's sentinel that says which batches with
// messages counted last: the number of the last, and the marks of it and those before
// it. A merge of .NET's leaves it alone.
const batchesColumn = "EntityBatches"

// batchesKnown is how many batches the sentinel names.
const batchesKnown = 16

// entityBatches are the batches that counted, as a sentinel names them.
type entityBatches struct {
	last  int
	marks []string // of the last and those before it
}

func parseBatches(column string) (b entityBatches) {
	if words := strings.Fields(column); len(words) > 0 {
		b.last, _ = strconv.Atoi(words[0]) // another program's
		b.marks = words[1:]
	}
	return b
}

func (b entityBatches) String() string {
	return strings.Join(append([]string{strconv.Itoa(b.last)}, b.marks...), " ")
}

// next returns what is to be known once the batch by which an entity gets an execution
// has counted.
func (b entityBatches) next(executionID string) entityBatches {
	marks := append([]string{batchMark(executionID)}, b.marks...)
	return entityBatches{b.last + 1, marks[:min(len(marks), batchesKnown)]}
}

// batchMark returns by what the batch is known that an entity gets an execution by.
func batchMark(executionID string) string { return executionID[max(0, len(executionID)-8):] }

// name returns what messages of the last batch say of it.
func (b entityBatches) name() string { return fmt.Sprintf("%d %s", b.last, b.marks[0]) }

// counted reports whether a batch with the given name counted. One that is older than
// what is known did, as far as anybody can tell: receivers know requests and answers
// that they got before.
func (b entityBatches) counted(name string) bool {
	number, mark, _ := strings.Cut(name, " ")
	n, err := strconv.Atoi(number)
	switch back := b.last - n; {
	case err != nil || back >= len(b.marks) && back >= 0:
		return true
	case back < 0:
		return false
	default:
		return b.marks[back] == mark
	}
}

// batchesAfter returns the batches that count once a checkpoint does, and whether it is
// one of them.
func (s *session) batchesAfter(cp *provider.Checkpoint) (b entityBatches, isOne bool) {
	b = parseBatches(s.loaded.batches)
	if !cp.SendLast || len(cp.Messages) == 0 {
		return b, false
	}
	return b.next(cp.Instance.ExecutionID), true
}

// show lets what a batch has put hidden be seen, and no more be asked for: the batch
// counts.
func (h *TaskHub) show(ctx context.Context, sent []sentMessage) error {
	var group errgroup.Group
	group.SetLimit(messagesAtOnce)
	for i := range sent {
		m := &sent[i]
		switch {
		case m.shown == "":
		case m.claimed != nil:
			m.claimed.mu.Lock()
			m.claimed.msg.text = m.shown // with the next change of the message
			m.claimed.mu.Unlock()
		default:
			group.Go(func() error {
				hidden := queueMessage{id: m.id, receipt: m.receipt, text: m.shown}
				_, err := m.queue.update(ctx, hidden, visibilityDelay(m.message, time.Now()))
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
	sentinel, err := h.historyRow(r.work, d.env.Sender.InstanceID, sentinelRowKey)
	if err != nil {
		d.abandon(r.work, "it cannot be found out whether the entity's batch counted that sent it: "+err.Error())
		return false
	}
	var counted entityBatches
	if sentinel != nil && sentinel.columns != nil {
		counted = parseBatches(sentinel.columns.EntityBatches)
	}
	if counted.counted(d.env.Batch) {
		return true
	}
	h.log.Info("DiscardingWorkItem", d.attrs("details", "the entity's batch that sent it did not count")...)
	if err := d.remove(r.work); err != nil {
		h.log.Warn("message could not be deleted, it comes back by itself", d.attrs("error", err)...)
	}
	return false
}
