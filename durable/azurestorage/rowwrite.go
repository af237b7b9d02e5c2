package azurestorage

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A lateRow is an instance row that is being written in the background.
type lateRow struct {
	done chan struct{}     // closed at the end
	row  *wire.InstanceRow // nil if it is not known what became of it
}

// writeInstanceRow makes the instance row say what the checkpoint changed. The
// history is written already, so losing a race here undoes nothing; what must
// not happen is that an older checkpoint, of a worker that was frozen in between,
// hides a newer one, of which no other might follow for long, or a newer execution
// (AzureTableTrackingStore.cs, UpdateStateAsync, with UseInstanceTableEtag). If
// the execution ends it returns how, unless the row does not tell that.
func (s *session) writeInstanceRow(ctx context.Context, cp *provider.Checkpoint, rows []wire.Row) (end *provider.InstanceState, err error) {
	if u := s.updateOfRow(cp, rows); u != nil {
		s.loaded.Row, err = u.Do(ctx)
		end = u.End
	}
	s.hub.instances.CachedRows.Put(s.slot.id, s.loaded.Row)
	return end, err
}

// writeInstanceRowLater writes the row, and then deletes what was handed out, in
// the background, as long as the partition is being read. awaitRow comes before
// the next use of the row. If it could not be written the messages come again, and
// put it right.
func (s *session) writeInstanceRowLater(ctx context.Context, cp *provider.Checkpoint, rows []wire.Row) error {
	u := s.updateOfRow(cp, rows)
	if u == nil {
		s.hub.instances.CachedRows.Put(s.slot.id, s.loaded.Row)
		s.removeTaken(ctx)
		return nil
	}
	late := &lateRow{done: make(chan struct{})}
	write := func(ctx context.Context) (err error) {
		defer close(late.done)
		late.row, err = u.Do(ctx)
		return err
	}
	s.late = late
	taken := s.current
	r := s.slot.partition.currentReading()
	background := func() {
		if err := write(r.work); err != nil {
			forEach(taken, func(d *delivery) {
				d.noteUntold(u)
				d.abandon(r.work, err.Error())
			})
			return
		}
		s.hub.removeAll(r.work, taken)
	}
	if r != nil && r.spawn(background) {
		s.current = nil
		return nil
	}
	if err := write(ctx); err != nil {
		return err
	}
	s.removeTaken(ctx)
	return nil
}

// awaitRow waits until the row is written that is being written in the
// background.
func (s *session) awaitRow() {
	if s.late == nil {
		return
	}
	<-s.late.done
	s.loaded.Row, s.late = s.late.row, nil
	if !s.failed {
		s.hub.instances.CachedRows.Put(s.slot.id, s.loaded.Row)
	}
}

// updateOfRow returns what is to be done to the row, nil if nothing is.
func (s *session) updateOfRow(cp *provider.Checkpoint, rows []wire.Row) *instances.RowUpdate {
	s.awaitRow()
	return s.hub.instances.UpdateOf(s.loaded, cp, rows)
}
