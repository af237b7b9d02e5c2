package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
)

// Coder encodes values to bytes or decodes them. One description of a record's fields serves
// both directions, so that they cannot differ. The zero value encodes.
//
// Numbers are varints. Times are 8 bytes: units of 100 ns since the year 1. A string is its
// length and its bytes. The length of an optional string is increased by 1; 0 stands for nil.
//
// Encoding does not change the values: several Coders may encode a value at the same time.
type Coder struct {
	Buf     []byte // the encoded bytes, or the bytes left to decode
	Reading bool
	Err     error // the first error; nothing is decoded after it
}

// ErrTruncated is returned for a record that ends before its last field.
var ErrTruncated = errors.New("record ends too early")

// Fail sets Err, unless it is set, and ends the coding.
func (c *Coder) Fail(err error) {
	if c.Err == nil {
		c.Err = err
	}
	c.Buf = nil
}

// End returns the first error, or an error if bytes are left after the last field.
func (c *Coder) End() error {
	if c.Reading && c.Err == nil && len(c.Buf) > 0 {
		return fmt.Errorf("record has %d bytes too many", len(c.Buf))
	}
	return c.Err
}

// Uint codes a varint.
func (c *Coder) Uint(v *uint64) {
	if !c.Reading {
		c.Buf = binary.AppendUvarint(c.Buf, *v)
		return
	}
	n, size := binary.Uvarint(c.Buf)
	if size <= 0 {
		c.Fail(ErrTruncated)
		*v = 0
		return
	}
	*v, c.Buf = n, c.Buf[size:]
}

// Int codes a signed varint.
func (c *Coder) Int(v *int) {
	if !c.Reading {
		c.Buf = binary.AppendVarint(c.Buf, int64(*v))
		return
	}
	n, size := binary.Varint(c.Buf)
	if size <= 0 {
		c.Fail(ErrTruncated)
		*v = 0
		return
	}
	*v, c.Buf = int(n), c.Buf[size:]
}

// Byte codes a byte.
func (c *Coder) Byte(v *byte) {
	if !c.Reading {
		c.Buf = append(c.Buf, *v)
		return
	}
	if len(c.Buf) == 0 {
		c.Fail(ErrTruncated)
		*v = 0
		return
	}
	*v, c.Buf = c.Buf[0], c.Buf[1:]
}

// Bool codes a boolean.
func (c *Coder) Bool(v *bool) {
	var b byte
	if *v {
		b = 1
	}
	c.Byte(&b)
	if b > 1 {
		c.Fail(fmt.Errorf("%d is not a boolean", b))
	}
	if c.Reading {
		*v = b == 1
	}
}

// secondsToUnix is the number of seconds from the year 1 to 1970.
const secondsToUnix = 62135596800

// Time codes a time. It loses the time zone and fractions of 100 ns.
func (c *Coder) Time(v *time.Time) {
	if !c.Reading {
		ticks := (v.Unix()+secondsToUnix)*1e7 + int64(v.Nanosecond())/100
		c.Buf = binary.BigEndian.AppendUint64(c.Buf, uint64(ticks))
		return
	}
	if len(c.Buf) < 8 {
		c.Fail(ErrTruncated)
		*v = time.Time{}
		return
	}
	ticks := int64(binary.BigEndian.Uint64(c.Buf))
	c.Buf = c.Buf[8:]
	seconds, rest := ticks/1e7, ticks%1e7
	*v = time.Unix(seconds-secondsToUnix, rest*100).UTC()
}

// Next returns the next n bytes to decode. If fewer are left, it fails and returns nil.
func (c *Coder) Next(n uint64) []byte {
	if n > uint64(len(c.Buf)) {
		c.Fail(ErrTruncated)
		return nil
	}
	b := c.Buf[:n]
	c.Buf = c.Buf[n:]
	return b
}

// String codes a string.
func (c *Coder) String(v *string) {
	n := uint64(len(*v))
	c.Uint(&n)
	if c.Reading {
		*v = string(c.Next(n))
		return
	}
	c.text(*v)
}

// text encodes a text without its length. After a large one, it reserves space for more fields. They
// would otherwise copy the large text to a larger buffer.
func (c *Coder) text(v string) {
	if len(v) >= reclaim.Large {
		c.Buf = slices.Grow(c.Buf, len(v)+smallFields)
	}
	c.Buf = append(c.Buf, v...)
}

// smallFields is the typical maximum size, in bytes, of the fields of a record without its payloads.
const smallFields = 16 << 10

// Text codes an optional string.
func (c *Coder) Text(v **string) {
	var n uint64
	if !c.Reading && *v != nil {
		n = uint64(len(**v)) + 1
	}
	c.Uint(&n)
	switch {
	case !c.Reading && n > 0:
		c.text(**v)
	case c.Reading && n > 0:
		if b := c.Next(n - 1); c.Err == nil {
			*v = new(string(b))
		}
	case c.Reading:
		*v = nil
	}
}

// Present codes whether an optional value is set, and returns it.
func (c *Coder) Present(is bool) bool {
	c.Bool(&is)
	return is && c.Err == nil
}

// Tags codes a map in the order of its keys: equal maps have equal bytes. A nil map differs
// from an empty one.
func (c *Coder) Tags(v *map[string]string) {
	if !c.Present(*v != nil) {
		if c.Reading {
			*v = nil
		}
		return
	}
	n := uint64(len(*v))
	c.Uint(&n)
	if c.Reading {
		if n > uint64(len(c.Buf)) { // each tag has at least two bytes
			c.Fail(ErrTruncated)
			return
		}
		m := make(map[string]string, n)
		for range n {
			var key, value string
			c.String(&key)
			c.String(&value)
			m[key] = value
		}
		*v = m
		return
	}
	for _, key := range slices.Sorted(maps.Keys(*v)) {
		value := (*v)[key]
		c.String(&key)
		c.String(&value)
	}
}

// change codes one change of a group: table, key and value. A nil value deletes the record.
func (c *Coder) change(table *Table, key, value *[]byte) {
	if n := c.changeTo(table, key, *value); n > 0 {
		c.blob(value, n-1)
	} else {
		*value = nil
	}
}

// changeTo codes a change without the bytes of its value. It returns the length of the value,
// increased by 1, or 0 if the change deletes the record.
func (c *Coder) changeTo(table *Table, key *[]byte, value []byte) uint64 {
	c.Byte((*byte)(table))
	n := uint64(len(*key))
	c.Uint(&n)
	c.blob(key, n)
	n = 0
	if value != nil {
		n = uint64(len(value)) + 1
	}
	c.Uint(&n)
	return n
}

// blob codes n bytes without a length.
func (c *Coder) blob(v *[]byte, n uint64) {
	if c.Reading {
		*v = c.Next(n)
		return
	}
	c.Buf = append(c.Buf, *v...)
}
