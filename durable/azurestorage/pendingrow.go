package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// A pendingRow is an instance row that is written in the background. Attempts go on until
// one succeeds, the partition is given up, or the next checkpoint writes the row instead.
type pendingRow struct {
	update *instances.RowUpdate
	taken  []*delivery   // deleted when the row is written; nil at the end if they are settled
	over   chan struct{} // closed when the next checkpoint writes the row
	tried  chan struct{} // closed after the first attempt
	done   chan struct{} // closed after the last one

	row *wire.InstanceRow // after the last attempt; nil if it is not known
}

// writeRowLater writes the row in the background, as long as the partition is read. Then
// it deletes what earlier checkpoints took whose row was not written, or else what this
// one took: one message that comes again is enough to repair the row. It reports whether
// the partition is read.
func (c *commit) writeRowLater(ctx context.Context, u *instances.RowUpdate, taken []*delivery) bool {
	r := c.slot.partition.currentReading()
	if r == nil {
		return false
	}
	rest := c.current
	if len(taken) == 0 {
		taken, rest = rest, nil
	}
	p := &pendingRow{update: u, taken: taken, over: make(chan struct{}), tried: make(chan struct{}), done: make(chan struct{})}
	c.hub.pendingRows.Store(c.slot.id, p)
	if !r.spawn(func() { p.run(r) }) {
		c.hub.pendingRows.Delete(c.slot.id)
		return false
	}
	c.pending, c.current = p, rest
	c.removeTaken(ctx)
	return true
}

func (p *pendingRow) run(r *reading) {
	taken, err := p.taken, p.write(r)
	close(p.tried)
	for delay := store.FirstOutageDelay; err != nil && p.waits(r, delay, err); delay = min(2*delay, prefetchRetryDelay) {
		err = p.write(r)
	}
	settle := err == nil || r.ctx.Err() != nil
	if settle {
		p.taken = nil
	}
	r.partition.hub.pendingRows.CompareAndDelete(p.update.InstanceID(), p)
	close(p.done)
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
// are to be deleted once the row is written.
func (s *session) takeOverRow() []*delivery {
	p := s.pending
	if p == nil {
		return nil
	}
	close(p.over)
	<-p.done
	s.loaded.Row, s.pending = p.row, nil
	return p.taken
}
