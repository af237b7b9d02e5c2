package entity

import "strings"

// EncodeAsDotNet returns s without what .NET does not write. It changes s.
func EncodeAsDotNet(s *State) string {
	s.lockID, s.memory, s.outbox = "", memory{}, nil
	for _, from := range s.sorter.received.values {
		from.recent = nil
	}
	return strings.Replace(s.Encode(), `{"exists":true,`, "{", 1)
}

// LockedBy returns who holds the lock.
func (s *State) LockedBy() string { return s.lockedBy }
