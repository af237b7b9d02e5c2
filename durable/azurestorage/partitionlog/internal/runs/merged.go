package runs

import "bytes"

// merged iterates over the records of several runs, newest first. A record in a newer run hides the
// records of the same key in older ones.
type merged []*cursor

// seek moves to the first record whose key is at least from.
func (m merged) seek(from []byte) error {
	for _, c := range m {
		if err := c.seek(from); err != nil {
			return err
		}
	}
	return nil
}

// current returns the current record. Its key is nil at the end.
func (m merged) current() (first record) {
	for _, c := range m {
		if c.ok && (first.key == nil || bytes.Compare(c.key, first.key) < 0) {
			first = c.record
		}
	}
	return first
}

// damage returns the error of a damaged range that starts at key, the current key, or nil.
func (m merged) damage(key []byte) error {
	for _, c := range m {
		if c.ok && c.damage != nil && bytes.Equal(c.key, key) {
			return unreadable(key, c.to, c.damage)
		}
	}
	return nil
}

// skip moves past the records with the given key.
func (m merged) skip(key []byte) error {
	for _, c := range m {
		if c.ok && bytes.Equal(c.key, key) {
			if err := c.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// scan calls f for each record that is not deleted, until f returns true or an error. The keys do
// not include the table.
func (m merged) scan(from []byte, f func(key []byte, value func() ([]byte, error)) (stop bool, err error)) error {
	if err := m.seek(from); err != nil {
		return err
	}
	for {
		r := m.current()
		if r.key == nil {
			return nil
		}
		if err := m.damage(r.key); err != nil {
			return err
		}
		if !r.isDeletion() {
			if stop, err := f(r.key[1:], r.read); stop || err != nil {
				return err
			}
		}
		if err := m.skip(r.key); err != nil {
			return err
		}
	}
}
