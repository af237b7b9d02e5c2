package chain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Frame is the unit of one append to a blob.
type Frame struct {
	Kind    byte // defines the meaning of Number and Payload
	Number  uint64
	Payload []byte
}

// Layout of a frame:
//
//	"dfl1" · kind (1 byte) · number (8) · payload length (4) · checksum (4) · payload
//
// The checksum covers the hub, the partition, and the frame without the checksum itself. It detects
// frames of another hub or partition.
const (
	magic     = "dfl1"
	checkedTo = len(magic) + 1 + 8 + 4
	// FrameHeaderSize is the size of a frame without its payload, in bytes.
	FrameHeaderSize = checkedTo + 4
	// MaxPayload is the maximum size of a payload, in bytes. A frame is one block of an append
	// blob, at most 4 MiB (https://learn.microsoft.com/rest/api/storageservices/append-block; more
	// since 2022).
	MaxPayload = 4<<20 - FrameHeaderSize
)

var checksums = crc32.MakeTable(crc32.Castagnoli)

// Errors of [Chain.DecodeFrame].
var (
	ErrTruncated = errors.New("the blob ends within a frame")
	errNoFrame   = errors.New("no frame starts here")
	errChecksum  = errors.New("the checksum is wrong: the frame is damaged, or belongs to another hub or partition")
)

// DamageError reports a blob that is missing or whose content is not valid.
type DamageError struct {
	Blob   string
	Offset int64
	Cause  error
}

// Error returns the blob, the offset and the cause.
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

// DecodeFrame returns the frame at the start of b and the bytes after it. The payload is a part of
// b, not a copy. The error is [ErrTruncated] if b is a truncated frame.
func (c *Chain) DecodeFrame(b []byte) (f Frame, rest []byte, err error) {
	if n := min(len(b), len(magic)); string(b[:n]) != magic[:n] {
		return f, b, errNoFrame
	}
	if len(b) < FrameHeaderSize {
		return f, b, ErrTruncated
	}
	size := FrameHeaderSize + int(binary.BigEndian.Uint32(b[checkedTo-4:]))
	if size > FrameHeaderSize+MaxPayload {
		return f, b, errNoFrame
	}
	if len(b) < size {
		return f, b, ErrTruncated
	}
	if binary.BigEndian.Uint32(b[checkedTo:]) != c.checksum(b[:size]) {
		return f, b, errChecksum
	}
	f = Frame{Kind: b[len(magic)], Number: binary.BigEndian.Uint64(b[len(magic)+1:]), Payload: b[FrameHeaderSize:size]}
	return f, b[size:], nil
}

// checksum returns the checksum of the frame in b.
func (c *Chain) checksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(c.seed, checksums, b[:checkedTo]), checksums, b[FrameHeaderSize:])
}
