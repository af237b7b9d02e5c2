package embedded

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Bounds of what is in memory. A layer is flushed when its journal file has
// reached flushSize. If the database does not keep up, writers wait from
// maxLayer on.
const (
	flushSize = 8 << 20
	maxLayer  = 64 << 20
)

// startFlusher starts what flushes in the background; close ends it.
func (s *store) startFlusher() {
	s.flusher.Go(func() {
		for {
			select {
			case <-s.full:
			case <-s.closing:
				return
			}
			s.flushUntilDone()
		}
	})
}

// flushPause is the time between attempts to flush a layer.
const flushPause = time.Second

// flushUntilDone flushes the flushing layer, if need be several times, until
// the store is closed.
func (s *store) flushUntilDone() {
	for failures := 0; ; failures++ {
		err := s.flush(s.flushing) // only this goroutine takes it away
		doomed := errors.As(err, new(*uncertainError))
		s.mu.Lock()
		s.failure, s.doomed = err, doomed
		if err == nil {
			s.flushing = nil
		}
		s.mu.Unlock()
		post(s.flushed)
		if doomed {
			s.log.Error("task hub takes no more writes until it is opened again", "path", s.path, "error", err)
			return
		}
		if err == nil {
			if failures > 0 {
				s.log.Info("the database can be written again", "path", s.path)
			}
			return
		}
		if failures == 0 {
			s.log.Error("cannot write to the database; what is new stays in the journal", "path", s.path, "error", err)
		}
		timer := time.NewTimer(s.pause)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return
		}
	}
}

// flush writes a layer into the database, with others that must be changed
// together with it.
func (s *store) flush(l *layer, others ...func(*bolt.Tx) error) error {
	var txid int
	err := guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			txid = tx.ID()
			if err := l.store(tx); err != nil {
				return err
			}
			for _, f := range others {
				if err := f(tx); err != nil {
					return err
				}
			}
			return putNumber(tx.Bucket([]byte(hubBucket)), appliedKey, l.last)
		})
	})
	if err != nil {
		return fmt.Errorf("write database: %w", s.certain(txid, err))
	}
	return nil
}

// An uncertainError says that nobody can know whether a transaction of the
// database is on the disk. Another one might write over what is still needed
// if it is not.
type uncertainError struct{ cause error }

func (e *uncertainError) Error() string {
	return fmt.Sprintf("it may or may not have happened: %v", e.cause)
}
func (e *uncertainError) Unwrap() error { return e.cause }

// certain returns the error of a transaction, as an *uncertainError if the
// transaction is visible all the same, or if that cannot be found out.
func (s *store) certain(txid int, cause error) error {
	var seen int
	err := guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			seen = tx.ID()
			return nil
		})
	})
	if panicked := errors.As(cause, new(*panicError)); panicked || err != nil || seen >= txid {
		return &uncertainError{cause}
	}
	return cause
}

// store puts a layer's changes into a transaction, in the order of the keys.
func (l *layer) store(tx *bolt.Tx) error {
	t := tables{tx: tx}
	for id := range tableCount {
		if len(l.tables[id].records) == 0 {
			continue
		}
		b, err := t.base(id)
		if err != nil {
			return err
		}
		for _, key := range l.sorted(id) {
			value := l.tables[id].records[key]
			if value == nil {
				err = b.remove([]byte(key))
			} else {
				err = b.put([]byte(key), value)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
