package entity

import (
	"strings"
	"time"
)

// EncodeAsDotNet returns s without what .NET does not write. It changes s.
func EncodeAsDotNet(s *State) string {
	s.lockID, s.memory = "", memory{}
	for _, from := range s.sorter.received.values {
		from.recent, from.old, from.came = nil, time.Time{}, nil
	}
	return strings.Replace(s.Encode(), `{"exists":true,`, "{", 1)
}

// ForgetOutbox makes as if what the last batch sent were sent, and what it took not deleted.
func (s *State) ForgetOutbox() { s.memory.last.outbox = nil }

// LockedBy returns who holds the lock.
func (s *State) LockedBy() string { return s.lockedBy }

// Clone returns a sorter that labels as s does.
func (s *Sorter) Clone() Sorter {
	c := Sorter{sendHorizon: s.sendHorizon}
	for _, to := range s.lastSent.keys {
		c.lastSent.set(to, s.lastSent.values[to])
	}
	return c
}
