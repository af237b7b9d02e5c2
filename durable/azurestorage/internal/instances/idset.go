package instances

// An IDSet is a set of numbers of actions, which go up from zero with few gaps.
// The zero value is empty.
type IDSet struct {
	bits []uint64
	far  map[int]bool // what no orchestrator gets to, but a wrong row may have
	Size int
}

// farID is where numbers begin that are not worth a bit for all below them.
const farID = 1 << 24

func (s *IDSet) Has(id int) bool {
	if id < 0 || id >= farID {
		return s.far[id]
	}
	return id>>6 < len(s.bits) && s.bits[id>>6]&(1<<(id&63)) != 0
}

// Add puts id into the set and reports whether it was not in it.
func (s *IDSet) Add(id int) bool {
	if s.Has(id) {
		return false
	}
	s.Size++
	if id < 0 || id >= farID {
		if s.far == nil {
			s.far = make(map[int]bool)
		}
		s.far[id] = true
		return true
	}
	if missing := id>>6 + 1 - len(s.bits); missing > 0 {
		s.bits = append(s.bits, make([]uint64, missing)...)
	}
	s.bits[id>>6] |= 1 << (id & 63)
	return true
}
