package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A coder writes values to bytes or reads them back, so that one description
// of a record's fields serves both and the two cannot drift apart.
//
// Numbers are varints, times are 100 ns units since the year 1 in 8 bytes,
// strings are their length and bytes. An optional string's length is one more
// than it is, since 0 stands for nil.
//
// What is written is not changed in any way: several coders may write the same
// value at once.
type coder struct {
	b       []byte // what was written, or what is left to read
	reading bool
	err     error // the first; nothing is read after it
}

func writing(buf []byte) *coder { return &coder{b: buf} }

func reading(b []byte) *coder { return &coder{b: b, reading: true} }

var errShort = errors.New("record ends too early")

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

// end reports what went wrong, and whether reading left something over.
func (c *coder) end() error {
	if c.reading && c.err == nil && len(c.b) > 0 {
		return fmt.Errorf("record has %d bytes too many", len(c.b))
	}
	return c.err
}

func (c *coder) uint(v *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.fail(errShort)
		*v = 0
		return
	}
	*v, c.b = n, c.b[size:]
}

func (c *coder) int(v *int) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 {
		c.fail(errShort)
		*v = 0
		return
	}
	*v, c.b = int(n), c.b[size:]
}

func (c *coder) byte(v *byte) {
	if !c.reading {
		c.b = append(c.b, *v)
		return
	}
	if len(c.b) == 0 {
		c.fail(errShort)
		*v = 0
		return
	}
	*v, c.b = c.b[0], c.b[1:]
}

func (c *coder) bool(v *bool) {
	var b byte
	if *v {
		b = 1
	}
	c.byte(&b)
	if b > 1 {
		c.fail(fmt.Errorf("%d is no boolean", b))
	}
	if c.reading {
		*v = b == 1
	}
}

// secondsToUnix is how many seconds the year 1 began before 1970.
const secondsToUnix = 62135596800

func (c *coder) time(v *time.Time) {
	if !c.reading {
		ticks := (v.Unix()+secondsToUnix)*1e7 + int64(v.Nanosecond())/100
		c.b = binary.BigEndian.AppendUint64(c.b, uint64(ticks))
		return
	}
	if len(c.b) < 8 {
		c.fail(errShort)
		*v = time.Time{}
		return
	}
	ticks := int64(binary.BigEndian.Uint64(c.b))
	c.b = c.b[8:]
	seconds, rest := ticks/1e7, ticks%1e7
	*v = time.Unix(seconds-secondsToUnix, rest*100).UTC()
}

// bytes returns the next n bytes of what is read.
func (c *coder) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail(errShort)
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *coder) string(v *string) {
	n := uint64(len(*v))
	c.uint(&n)
	if c.reading {
		*v = string(c.bytes(n))
		return
	}
	c.b = append(c.b, *v...)
}

func (c *coder) text(v **string) {
	var n uint64
	if !c.reading && *v != nil {
		n = uint64(len(**v)) + 1
	}
	c.uint(&n)
	switch {
	case !c.reading && n > 0:
		c.b = append(c.b, **v...)
	case c.reading && n > 0:
		if b := c.bytes(n - 1); c.err == nil {
			*v = new(string(b))
		}
	case c.reading:
		*v = nil
	}
}

// present codes whether an optional part is there.
func (c *coder) present(is bool) bool {
	c.bool(&is)
	return is && c.err == nil
}

// tags codes a map in the order of its keys, so that equal maps have equal
// bytes. A nil map differs from an empty one.
func (c *coder) tags(v *map[string]string) {
	if !c.present(*v != nil) {
		if c.reading {
			*v = nil
		}
		return
	}
	n := uint64(len(*v))
	c.uint(&n)
	if c.reading {
		if n > uint64(len(c.b)) { // each takes two bytes at least
			c.fail(errShort)
			return
		}
		m := make(map[string]string, n)
		for range n {
			var key, value string
			c.string(&key)
			c.string(&value)
			m[key] = value
		}
		*v = m
		return
	}
	for _, key := range slices.Sorted(maps.Keys(*v)) {
		value := (*v)[key]
		c.string(&key)
		c.string(&value)
	}
}
