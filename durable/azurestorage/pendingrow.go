package azurestorage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Late rows
//
// A commit may complete before it writes the row of its instance. The row is then in one of these
// states, as seen by the process that runs the instance:
//
//	state    the row                                             this process has
//	current  says what the history says                          session.loaded.Row
//	delayed  says Pending, but the execution has started         a pendingRow with a due time, a startedExecution
//	pending  lacks a checkpoint; a background write runs         a pendingRow
//	behind   lacks a checkpoint; no write follows by itself      a spent message with a repair, and a consumed message
//
// The transitions are:
//
//	from     to       function                when
//	current  current  RowUpdate.Write         the status changes (not RowUpdate.MayFollowCommit); the commit waits for the write
//	current  delayed  commit.writeRowLater    the checkpoint only starts the execution (RowUpdate.TryDelay)
//	current  pending  commit.writeRowLater    the checkpoint changes no status (RowUpdate.MayFollowCommit)
//	delayed  pending  pendingRow.awaitDue     after rowDelay, before a purge (lateRows.flush), or the partition is released
//	delayed  current  session.takeOverRow     the next checkpoint; its write includes the skipped one
//	pending  current  pendingRow.write        the write succeeds; the consumed messages are deleted after it
//	pending  current  session.takeOverRow     the next checkpoint; it writes the row or finds it current
//	pending  behind   pendingRow.run          the partition is released before the write succeeds
//	any      behind   commit.finish fails     a write fails in the commit; delivery.markCommitted remembers the messages
//	any      behind   (none)                  this process dies; the consumed messages stay in their queue
//	behind   current  disposer.repairSpent    a message that this process remembers is redelivered
//	behind   current  disposer.repairRow      another process receives it, and the history identifies it as a duplicate
//	behind   current  RowUpdate.Write         the next checkpoint finds that the row misses the start (rowMissesStart)
//
// A consumed message is deleted after the row is current again. One message is enough for a repair.

// A pendingRow is a background write of an instance row. It is retried until it succeeds, the
// partition is released, or the next checkpoint writes the row instead.
type pendingRow struct {
	late      *lateRows
	update    *instances.RowUpdate
	due       time.Time            // time of the first attempt; zero for immediately
	consumed  []*inflight.Delivery // messages to delete after the write; nil at the end if they are settled
	wake      *inflight.Delivery   // to enqueue before the write if it is in no queue; or nil
	replaced  chan struct{}        // closed when the next checkpoint takes over the write
	attempted chan struct{}        // closed after the first attempt
	done      chan struct{}        // closed after the last attempt
	flush     chan struct{}        // closed to start the first attempt immediately
	flushOnce sync.Once            // closes flush

	// The following fields are set after the last attempt.
	row     *wire.InstanceRow // nil if the row is not known
	skipped bool              // no attempt was made
}

// lateRows are the instance rows that lag behind their histories in this process.
type lateRows struct {
	log     *slog.Logger
	pending sync.Map // instance ID to *pendingRow
	started startedRegistry
}

// of returns the background write of an instance's row, or nil.
func (l *lateRows) of(instanceID string) *pendingRow {
	pending, _ := l.pending.Load(instanceID)
	p, _ := pending.(*pendingRow) // the map holds no other type
	return p
}

// rowDelay is the permitted lag of an instance's row behind its start. An execution that ends
// within this time needs only one row write. .NET's rows lag similarly behind if its queues are
// full.
const rowDelay = time.Second

// maxRowRetryDelay is the maximum delay before another attempt to write a row in the background.
const maxRowRetryDelay = 5 * time.Second

// writeRowLater writes the row in the background while the partition is owned. It returns false if
// the partition is not owned. After the write it deletes the messages of earlier checkpoints that
// did not write the row, or else this checkpoint's messages. One redelivered message is enough to
// repair the row. before is the skipped row write of the previous checkpoint, or nil.
func (c *commit) writeRowLater(ctx context.Context, u *instances.RowUpdate, consumed []*inflight.Delivery, before *pendingRow) bool {
	r := c.Partition.CurrentReading()
	if r == nil {
		return false
	}
	rest := c.Current
	if len(consumed) == 0 {
		consumed, rest = rest, nil
	}
	p := &pendingRow{
		late: c.late, update: u, consumed: consumed, wake: c.wake,
		replaced: make(chan struct{}), attempted: make(chan struct{}), done: make(chan struct{}), flush: make(chan struct{}),
	}
	if updatedAt, ok := u.TryDelay(); ok {
		c.late.started.add(c.cp.Instance, updatedAt)
		p.due = time.Now().Add(rowDelay)
		if before != nil {
			p.due = before.due
		}
	}
	c.late.pending.Store(c.InstanceID, p)
	if !r.Spawn(func() { p.run(r) }) {
		c.late.pending.Delete(c.InstanceID)
		return false
	}
	for _, d := range consumed {
		d.Safety.Acknowledge()
	}
	c.pending, c.Current = p, rest
	c.removeConsumed(ctx)
	return true
}

func (p *pendingRow) run(r *inbound.Reading) {
	consumed := p.consumed
	if !p.awaitDue(r) {
		p.row, p.skipped = p.update.PreviousRow(), true
		p.end(r)
		return
	}
	err := p.write(r)
	close(p.attempted)
	for delay := store.FirstOutageDelay; err != nil && p.awaitRetry(r, delay, err); delay = min(2*delay, maxRowRetryDelay) {
		err = p.write(r)
	}
	p.late.started.remove(p.update.InstanceID())
	settle := err == nil || r.Context.Err() != nil
	if settle {
		p.consumed = nil
	}
	p.end(r)
	switch {
	case err == nil:
		inflight.RemoveAll(r.Work, consumed)
	case settle:
		for _, d := range consumed {
			d.MarkCommitted()
		}
		inflight.ReleaseAll(r.Work, consumed)
	}
}

func (p *pendingRow) end(r *inbound.Reading) {
	p.late.pending.CompareAndDelete(p.update.InstanceID(), p)
	close(p.done)
}

// awaitDue waits until the row is due or the partition is released. It returns false if the next
// checkpoint takes over first.
func (p *pendingRow) awaitDue(r *inbound.Reading) bool {
	wait := time.Until(p.due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.replaced:
		return false
	case <-r.Context.Done():
	case <-p.flush:
	case <-timer.C:
	}
	return true
}

// flush makes this process write the delayed row of the instance now, and waits for the first
// attempt.
func (l *lateRows) flush(ctx context.Context, instanceID string) {
	p := l.of(instanceID)
	if p == nil || p.due.IsZero() {
		return
	}
	p.flushOnce.Do(func() { close(p.flush) })
	select {
	case <-p.attempted:
	case <-p.done: // the next checkpoint writes the row
	case <-ctx.Done():
	}
}

// awaitFirst waits for the first attempt unless the write is delayed.
func (p *pendingRow) awaitFirst() {
	if p != nil && p.due.IsZero() {
		<-p.attempted
	}
}

func (p *pendingRow) write(r *inbound.Reading) (err error) {
	if p.wake != nil {
		if err := p.wake.Safety.Enqueue(r.Work); err != nil {
			return err
		}
	}
	p.row, err = p.update.Write(r.Work)
	return err
}

// awaitRetry waits before the next attempt. It returns false if no further attempt must be made.
func (p *pendingRow) awaitRetry(r *inbound.Reading, delay time.Duration, cause error) bool {
	p.late.log.Warn("cannot write instance row", "instanceId", p.update.InstanceID(), "error", cause)
	select {
	case <-p.replaced:
	case <-r.Context.Done():
	case <-time.After(delay):
		return true
	}
	return false
}

// takeOverRow stops the background write of the row. It returns the messages to delete once the row
// is written, and the row write if no attempt was made, or nil.
func (s *session) takeOverRow() (consumed []*inflight.Delivery, skipped *pendingRow) {
	p := s.pending
	if p == nil {
		return nil, nil
	}
	close(p.replaced)
	<-p.done
	s.Loaded.Row, s.pending = p.row, nil
	if p.skipped {
		skipped = p
	}
	return p.consumed, skipped
}

// updateOrNil returns the row update of p, or nil if p is nil.
func (p *pendingRow) updateOrNil() *instances.RowUpdate {
	if p == nil {
		return nil
	}
	return p.update
}

// A startedExecution is an execution that this process runs although its row says Pending.
type startedExecution struct {
	execution history.OrchestrationInstance
	updatedAt time.Time
}

// startedExecutions are started executions by instance ID.
type startedExecutions map[string]startedExecution

// correct changes state, which was read from a row, from Pending to Running if the execution has
// started. The caller must look up b before it reads the row, so that a Pending row is not newer
// than b.
func (b startedExecutions) correct(state *provider.InstanceState) {
	if began, ok := b[state.Instance.InstanceID]; ok && began.execution == state.Instance && state.Status == history.Pending {
		state.Status, state.LastUpdatedAt = history.Running, began.updatedAt
	}
}

// startedRegistry holds the started executions of a hub. Clients in this process use it to correct
// the states of instances.
type startedRegistry struct{ all sync.Map } // instance ID to startedExecution

func (b *startedRegistry) add(execution history.OrchestrationInstance, updatedAt time.Time) {
	b.all.Store(execution.InstanceID, startedExecution{execution, updatedAt})
}

func (b *startedRegistry) remove(instanceID string) { b.all.Delete(instanceID) }

// of returns the started execution of an instance, if there is one.
func (b *startedRegistry) of(instanceID string) startedExecutions {
	began, ok := b.all.Load(instanceID)
	if !ok {
		return nil
	}
	return startedExecutions{instanceID: began.(startedExecution)} // the map holds no other type
}

// executions returns the started executions of all instances.
func (b *startedRegistry) executions() startedExecutions {
	all := make(startedExecutions)
	b.all.Range(func(id, began any) bool {
		all[id.(string)] = began.(startedExecution) // the map holds no other type
		return true
	})
	return all
}
