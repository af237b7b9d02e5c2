package entity

import (
	"strings"
	"time"
)

// EncodeAsDotNet returns s without the extensions that .NET does not write. It changes s.
func EncodeAsDotNet(s *State) string {
	s.lockID, s.memory = "", memory{}
	for _, from := range s.sorter.received.values {
		from.recent, from.old, from.came = nil, time.Time{}, nil
	}
	return strings.Replace(s.Encode(), `{"exists":true,`, "{", 1)
}

// ForgetOutbox simulates a batch whose outbox was sent and whose messages were not deleted.
func (s *State) ForgetOutbox() { s.memory.last.outbox = nil }

// LockedBy returns the instance ID of the lock's holder.
func (s *State) LockedBy() string { return s.lockedBy }

// Clone returns a sorter that assigns the same labels as s.
func (s *Sorter) Clone() Sorter {
	c := Sorter{sendHorizon: s.sendHorizon}
	for _, to := range s.lastSent.keys {
		c.lastSent.set(to, s.lastSent.values[to])
	}
	return c
}
