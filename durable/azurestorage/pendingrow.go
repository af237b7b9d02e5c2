package azurestorage

import (
	"context"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A pendingRow is an instance row that is written in the background. Attempts go on until
// one succeeds, the partition is given up, or the next checkpoint writes the row instead.
type pendingRow struct {
	update *instances.RowUpdate
	due    time.Time     // of the first attempt, zero for at once
	taken  []*delivery   // deleted when the row is written; nil at the end if they are settled
	over   chan struct{} // closed when the next checkpoint writes the row
	tried  chan struct{} // closed after the first attempt
	done   chan struct{} // closed after the last one
	soon   chan struct{} // closed when the first attempt is not to be put off any more
	hurry  sync.Once     // closes soon

	// After the last attempt:
	row     *wire.InstanceRow // nil if it is not known
	leftOut bool              // there was none
}

// putOffFor is for how long it may not be in its row that an execution has begun: for what
// ends sooner one write says both. .NET's rows are as late where its queues are full.
const putOffFor = time.Second

// writeRowLater writes the row in the background, as long as the partition is read. Then
// it deletes what earlier checkpoints took whose row was not written, or else what this
// one took: one message that comes again is enough to repair the row. before is the last
// checkpoint's row that was left out, or nil. It reports whether the partition is read.
func (c *commit) writeRowLater(ctx context.Context, u *instances.RowUpdate, taken []*delivery, before *pendingRow) bool {
	r := c.slot.partition.currentReading()
	if r == nil {
		return false
	}
	rest := c.current
	if len(taken) == 0 {
		taken, rest = rest, nil
	}
	p := &pendingRow{update: u, taken: taken, over: make(chan struct{}), tried: make(chan struct{}), done: make(chan struct{}), soon: make(chan struct{})}
	if updatedAt, ok := u.PutOff(); ok {
		c.hub.begun.add(c.cp.Instance, updatedAt)
		p.due = time.Now().Add(putOffFor)
		if before != nil {
			p.due = before.due
		}
	}
	c.hub.pendingRows.Store(c.slot.id, p)
	if !r.spawn(func() { p.run(r) }) {
		c.hub.pendingRows.Delete(c.slot.id)
		return false
	}
	for _, d := range taken {
		d.raised.taken()
	}
	c.pending, c.current = p, rest
	c.removeTaken(ctx)
	return true
}

func (p *pendingRow) run(r *reading) {
	taken := p.taken
	if !p.isDue(r) {
		p.row, p.leftOut = p.update.Before(), true
		p.end(r)
		return
	}
	err := p.write(r)
	close(p.tried)
	for delay := store.FirstOutageDelay; err != nil && p.waits(r, delay, err); delay = min(2*delay, prefetchRetryDelay) {
		err = p.write(r)
	}
	r.partition.hub.begun.remove(p.update.InstanceID())
	settle := err == nil || r.ctx.Err() != nil
	if settle {
		p.taken = nil
	}
	p.end(r)
	switch {
	case err == nil:
		removeAll(r.work, taken)
	case settle:
		for _, d := range taken {
			d.noteCommitted()
		}
		handBackAll(r.work, taken)
	}
}

func (p *pendingRow) end(r *reading) {
	r.partition.hub.pendingRows.CompareAndDelete(p.update.InstanceID(), p)
	close(p.done)
}

// isDue waits until the row is due or the partition is given up. It returns false if the
// next checkpoint comes sooner.
func (p *pendingRow) isDue(r *reading) bool {
	wait := time.Until(p.due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.over:
		return false
	case <-r.ctx.Done():
	case <-p.soon:
	case <-timer.C:
	}
	return true
}

// writePutOff has a row written that is put off, if this process has one of the instance.
func (h *TaskHub) writePutOff(ctx context.Context, instanceID string) {
	pending, _ := h.pendingRows.Load(instanceID)
	p, _ := pending.(*pendingRow)
	if p == nil || p.due.IsZero() {
		return
	}
	p.hurry.Do(func() { close(p.soon) })
	select {
	case <-p.tried:
	case <-p.done: // the next checkpoint writes it
	case <-ctx.Done():
	}
}

// awaitFirst waits for the first attempt, unless that is put off.
func (p *pendingRow) awaitFirst() {
	if p != nil && p.due.IsZero() {
		<-p.tried
	}
}

func (p *pendingRow) write(r *reading) (err error) {
	p.row, err = p.update.Do(r.work)
	return err
}

// waits waits before the next attempt. It returns false if there is none.
func (p *pendingRow) waits(r *reading, delay time.Duration, cause error) bool {
	r.partition.hub.log.Warn("instance row could not be written", "instanceId", p.update.InstanceID(), "error", cause)
	select {
	case <-p.over:
	case <-r.ctx.Done():
	case <-time.After(delay):
		return true
	}
	return false
}

// takeOverRow ends the writing of the row in the background. It returns the messages that
// are to be deleted once the row is written, and what was to be written if that was left
// out, or nil.
func (s *session) takeOverRow() (taken []*delivery, leftOut *pendingRow) {
	p := s.pending
	if p == nil {
		return nil, nil
	}
	close(p.over)
	<-p.done
	s.loaded.Row, s.pending = p.row, nil
	if p.leftOut {
		leftOut = p
	}
	return p.taken, leftOut
}

// updateOrNil returns what was to be written, nil if p is nil.
func (p *pendingRow) updateOrNil() *instances.RowUpdate {
	if p == nil {
		return nil
	}
	return p.update
}

// A beginning is what an instance's row does not say yet: that an execution runs, which this
// process knows since it runs it.
type beginning struct {
	execution history.OrchestrationInstance
	updatedAt time.Time
}

// beginnings are those of instances, by ID.
type beginnings map[string]beginning

// tell corrects what a row says of an instance. Rows are read after the beginnings were
// looked up, so that one which is Pending is no newer.
func (b beginnings) tell(state *provider.InstanceState) {
	if began, ok := b[state.Instance.InstanceID]; ok && began.execution == state.Instance && state.Status == history.Pending {
		state.Status, state.LastUpdatedAt = history.Running, began.updatedAt
	}
}

// begun has the beginnings of a hub, by which clients in this process are told.
type begun struct{ all sync.Map } // of beginning, by instance

func (b *begun) add(execution history.OrchestrationInstance, updatedAt time.Time) {
	b.all.Store(execution.InstanceID, beginning{execution, updatedAt})
}

func (b *begun) remove(instanceID string) { b.all.Delete(instanceID) }

// of returns the beginning of an instance, if there is one.
func (b *begun) of(instanceID string) beginnings {
	began, ok := b.all.Load(instanceID)
	if !ok {
		return nil
	}
	return beginnings{instanceID: began.(beginning)} // nothing else is in the map
}

// each returns the beginnings of all instances.
func (b *begun) each() beginnings {
	all := make(beginnings)
	b.all.Range(func(id, began any) bool {
		all[id.(string)] = began.(beginning) // nothing else is in the map
		return true
	})
	return all
}
