package chain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Frame is what one append adds to a blob.
type Frame struct {
	Kind    byte // what the number and the payload are
	Number  uint64
	Payload []byte
}

// The layout of a frame:
//
//	"dfl1" · kind (1 byte) · number (8) · length of the payload (4) · checksum (4) · payload
//
// The checksum is over the hub and the partition, so that a foreign frame is recognised,
// and all of the frame but itself.
const (
	magic     = "dfl1"
	checkedTo = len(magic) + 1 + 8 + 4
	// FrameHead is what a frame adds to its payload, in bytes.
	FrameHead = checkedTo + 4
	// MaxPayload is how long a payload can be: the frame is one block of an append blob,
	// and those have 4 MiB
	// (https://learn.microsoft.com/rest/api/storageservices/append-block; more since 2022).
	MaxPayload = 4<<20 - FrameHead
)

var checksums = crc32.MakeTable(crc32.Castagnoli)

// Errors of [DecodeFrame].
var (
	ErrCut      = errors.New("the blob ends within a frame")
	errNoFrame  = errors.New("no frame begins here")
	errChecksum = errors.New("the checksum is wrong: the frame is damaged, or of another hub or partition")
)

// DamageError is the error of a blob that does not hold what was written.
type DamageError struct {
	Blob   string
	Offset int64
	Cause  error
}

// Error says where the damage is.
func (e *DamageError) Error() string {
	return fmt.Sprintf("blob %s is damaged at offset %d: %v", e.Blob, e.Offset, e.Cause)
}

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Cause }

// AppendFrame appends a frame to b.
func (c *Chain) AppendFrame(b []byte, f Frame) []byte {
	at := len(b)
	b = append(append(b, magic...), f.Kind)
	b = binary.BigEndian.AppendUint64(b, f.Number)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Payload)))
	b = append(append(b, 0, 0, 0, 0), f.Payload...)
	binary.BigEndian.PutUint32(b[at+checkedTo:], c.checksum(b[at:]))
	return b
}

// DecodeFrame returns the frame at the start of b, whose payload is part of b, and what is
// after it. The error is [ErrCut] if b may be the start of a frame.
func (c *Chain) DecodeFrame(b []byte) (f Frame, rest []byte, err error) {
	if n := min(len(b), len(magic)); string(b[:n]) != magic[:n] {
		return f, b, errNoFrame
	}
	if len(b) < FrameHead {
		return f, b, ErrCut
	}
	size := FrameHead + int(binary.BigEndian.Uint32(b[checkedTo-4:]))
	if size > FrameHead+MaxPayload {
		return f, b, errNoFrame
	}
	if len(b) < size {
		return f, b, ErrCut
	}
	if binary.BigEndian.Uint32(b[checkedTo:]) != c.checksum(b[:size]) {
		return f, b, errChecksum
	}
	f = Frame{Kind: b[len(magic)], Number: binary.BigEndian.Uint64(b[len(magic)+1:]), Payload: b[FrameHead:size]}
	return f, b[size:], nil
}

// checksum returns that of the frame that b holds.
func (c *Chain) checksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(c.seed, checksums, b[:checkedTo]), checksums, b[FrameHead:])
}
