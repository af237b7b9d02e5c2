package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

// A store keeps a hub's records: in a database, and on top of that in layers in
// memory, whose changes are in the journal. A layer that has grown goes into
// the database in the background. What is deleted soon, as are most messages
// and activities, never gets there.
type store struct {
	path    string
	log     *slog.Logger
	db      *bolt.DB
	file    os.FileInfo // of the database, when it was opened
	journal *journal    // of the writer
	last    uint64      // the number of the last group; of the writer
	broken  error       // why nothing can be written any more; of the writer

	// flushSize, maxLayer and flushPause, less in tests.
	flushAt int64
	limitAt int
	pause   time.Duration

	there   atomic.Int64  // when the file was last seen in its place, in Unix nanoseconds
	full    chan struct{} // has room for one: there is a layer to flush
	flushed chan struct{} // has room for one: it was flushed, or that failed
	closing chan struct{}
	flusher sync.WaitGroup

	mu       sync.RWMutex // protects the following
	active   *layer       // takes changes
	flushing *layer       // goes into the database; nil if there is none
	failure  error        // why that failed the last time
	doomed   bool         // it must not be tried again
}

// view calls f with the records as they are at one time, and with the changes
// of staged on top, if there are any.
func (s *store) view(staged *layer, f func(*tables) error) error {
	err := guard(func() error {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.db.View(func(tx *bolt.Tx) error {
			t := &tables{tx: tx, layers: make([]*layer, 0, 3)}
			for _, l := range []*layer{staged, s.active, s.flushing} {
				if l != nil {
					t.layers = append(t.layers, l)
				}
			}
			return f(t)
		})
	})
	if errors.Is(err, boltErrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// commit makes changes durable, which the journal gets as the given group, and
// visible.
func (s *store) commit(staged *layer, changes []byte) error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.checkThere(); err != nil {
		return err
	}
	if err := s.makeRoom(); err != nil {
		return err
	}
	if err := s.journal.append(s.last+1, changes); err != nil {
		var unsynced *unsyncedError
		if errors.As(err, &unsynced) {
			s.breakDown(err)
		}
		return err
	}
	s.last++
	staged.last = s.last
	s.mu.Lock()
	s.active.add(staged)
	s.mu.Unlock()
	s.flushIfGrown()
	return nil
}

// thereFor is how long a file that was in its place is read without another look.
const thereFor = time.Second

// wasThere is checkThere, which it asks unless the file was there a moment ago.
func (s *store) wasThere() error {
	if time.Since(time.Unix(0, s.there.Load())) < thereFor {
		return nil
	}
	return s.checkThere()
}

// checkThere returns an error if the file is not there any more under its name:
// nobody would find what is written to it.
func (s *store) checkThere() error {
	now, err := os.Stat(s.path)
	if err == nil && !os.SameFile(s.file, now) {
		err = &fs.PathError{Op: "find", Path: s.path, Err: errors.New("there is another file in its place")}
	}
	if err != nil {
		s.there.Store(0)
		return fmt.Errorf("the task hub's file was deleted or moved while it was open; put it back, or restart the app: %w", err)
	}
	s.there.Store(time.Now().UnixNano())
	return nil
}

// breakDown lets nothing more be written: it would be built on what may not be
// there.
func (s *store) breakDown(cause error) {
	s.broken = fmt.Errorf("an earlier write may or may not have happened; the task hub has to be opened again: %w", cause)
	s.log.Error("task hub takes no more writes until it is opened again", "path", s.path, "error", cause)
}

// makeRoom waits for the database if it has fallen behind.
func (s *store) makeRoom() error {
	for {
		s.mu.RLock()
		behind := s.active.size >= s.limitAt && s.flushing != nil
		failure, doomed := s.failure, s.doomed
		s.mu.RUnlock()
		switch {
		case doomed:
			return failure
		case !behind:
			s.flushIfGrown() // if it could not be when the layer had grown
			return nil
		case failure != nil:
			return failure
		}
		<-s.flushed
	}
}

// flushIfGrown has the active layer flushed if it is time, and if the one
// before is.
func (s *store) flushIfGrown() {
	if s.journal.offset < s.flushAt {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushing != nil {
		return
	}
	s.flushing, s.active = s.active, &layer{last: s.last}
	s.journal.turn()
	post(s.full)
}

// close writes what is in memory into the database, so that it alone is the
// hub, and closes it.
func (s *store) close() error {
	close(s.closing)
	s.flusher.Wait()
	err := s.leave()
	if err != nil {
		// The journal has it all: it is read when the hub is next opened.
		return errors.Join(err, s.journal.close(), s.db.Close())
	}
	return errors.Join(s.journal.remove(), s.db.Close())
}

func (s *store) leave() error {
	if s.broken != nil {
		return s.broken
	}
	if s.doomed {
		return s.failure
	}
	if s.flushing != nil {
		if err := s.flush(s.flushing); err != nil {
			return err
		}
		s.flushing = nil
	}
	return s.flush(s.active, markClosed)
}
