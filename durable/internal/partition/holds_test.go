package partition

import (
	"errors"
	"testing"
	"testing/synctest"
)

// Readable may read a file. The partition's work does not wait for it.
func TestSession_HoldsAsksForTheFileOutsideTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p *Partition
		isLocked, deleted := false, error(nil)
		cfg := rigConfig()
		cfg.Readable = func() error {
			if p != nil {
				if isLocked = !p.mu.TryLock(); !isLocked {
					p.mu.Unlock()
				}
			}
			return deleted
		}
		r := openRigWith(t, newDisk(), cfg)
		r.Start("a")
		s := r.Next().Session.(*session)
		synctest.Wait() // no other goroutine locks mu
		p = r.Partition
		if holds := s.Holds(); !holds || isLocked {
			t.Errorf("Holds = %v, want true; mu was locked: %v", holds, isLocked)
		}
		deleted = errors.New("deleted")
		if s.Holds() {
			t.Error("Holds = true without the file, want false")
		}
		deleted = nil
		r.Must(s.Release(t.Context()))
		if s.Holds() {
			t.Error("Holds = true after the release, want false")
		}
	})
}
