package bloblog

import (
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// Kinds of frames.
const (
	kindHeader byte = iota + 1 // first frame of a blob
	kindGroup                  // complete group
	kindFirst                  // first part of a group that exceeds one block
	kindMore                   // middle part
	kindLast                   // last part
	kindBase                   // manifest of a new base
	kindOpened                 // a new owner opened the log
	kindClosed                 // the owner closed the log
	kindSeal                   // the log continues in the next blob
)

// Frame is a group, or the manifest of a new base.
type Frame struct {
	Number   uint64 // number of the group, or of the last group in the base
	Changes  []byte // content of the group
	Manifest []byte // nil for a group
}

// history is the state of the log after a number of frames.
type history struct {
	last     uint64 // last group
	base     uint64 // last group in the base
	manifest []byte
	opens    uint64 // number of the last opening
	crashes  uint64
	alive    bool // the last owner has not closed the log
}

// code encodes or decodes a history. The header of each blob contains it.
func (h *history) code(c *logstore.Coder) {
	c.Uint(&h.last)
	c.Uint(&h.base)
	manifest := string(h.manifest)
	c.String(&manifest)
	h.manifest = []byte(manifest)
	c.Uint(&h.opens)
	c.Uint(&h.crashes)
	c.Bool(&h.alive)
}

// open updates the history for a new owner that opens the log at the given time.
func (h *history) open(now time.Time) {
	h.opens = max(h.opens+1, openingAt(now))
	if h.alive {
		h.crashes++
	}
	h.alive = true
}

// openingAt returns the minimum number of an opening: the number of openingIntervals since 2000. A failover of
// the account can lose the last openings of a log, although the logs of other partitions have recorded
// messages of these owners. The next opening must have a higher number. A partition that is opened
// more often than once per openingInterval may exceed the minimum, and then has no such protection.
//
// Numbers have 24 bits. The limit leaves half of them if a clock is far in the future.
func openingAt(now time.Time) uint64 {
	return uint64(min(max(0, now.Sub(year2000)/openingInterval), 1<<23))
}

const openingInterval = 4 * time.Minute

var year2000 = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// scan decodes the frames of consecutive blobs.
type scan struct {
	chain *chain.Chain
	history
	started bool    // a header has been read
	before  uint64  // last group before the current blob
	first   []byte  // manifest in effect at the start of the blob
	out     []Frame // groups and manifests read so far
	sealed  string  // nonce of the next blob, if the blob is sealed
	frames  int     // number of frames read

	number uint64 // of the group whose parts are being read
	parts  []byte
}

var errGap = errors.New("groups are missing")

// read decodes the complete frames at the start of b and returns their total size. b is the content
// of the given blob from offset on. A truncated frame at the end of b is not an error.
func (s *scan) read(number uint64, offset int64, b []byte) (int64, error) {
	begin := offset
	for len(b) > 0 && s.sealed == "" {
		f, rest, err := s.chain.DecodeFrame(b)
		if errors.Is(err, chain.ErrTruncated) {
			break
		}
		if err == nil && (offset == 0) != (f.Kind == kindHeader) {
			err = errors.New("a header must be the first frame of a blob, and the only one")
		}
		if err == nil {
			err = s.apply(number, f)
		}
		if err != nil {
			return offset - begin, &chain.DamageError{Blob: s.chain.Name(number), Offset: offset, Cause: err}
		}
		s.frames++
		offset += int64(len(b) - len(rest))
		b = rest
	}
	return offset - begin, nil
}

// apply updates the state with one frame of the given blob.
func (s *scan) apply(blob uint64, f chain.Frame) error {
	switch f.Kind {
	case kindMore, kindLast:
		if s.parts == nil || f.Number != s.number {
			return errors.New("a part of a group without its previous parts")
		}
		s.parts = append(s.parts, f.Payload...)
		if f.Kind == kindMore {
			return nil
		}
		f.Payload = s.parts
	case kindFirst:
		s.number, s.parts = f.Number, append([]byte{}, f.Payload...)
		return nil
	}
	s.parts = nil // an incomplete group was never acknowledged
	c := logstore.Coder{Buf: f.Payload, Reading: true}
	switch f.Kind {
	case kindGroup, kindLast:
		if f.Number != s.last+1 {
			return fmt.Errorf("%w: group %d follows group %d", errGap, f.Number, s.last)
		}
		s.last = f.Number
		s.out = append(s.out, Frame{Number: f.Number, Changes: f.Payload})
		return nil
	case kindBase:
		s.base, s.manifest = f.Number, f.Payload
		s.out = append(s.out, Frame{Number: f.Number, Manifest: f.Payload})
		return nil
	case kindHeader:
		if f.Number != blob {
			return fmt.Errorf("it contains the header of blob %d", f.Number)
		}
		last := s.last
		if s.history.code(&c); s.started && s.last != last {
			return fmt.Errorf("%w: the blob continues after group %d, but the previous blob ends with group %d", errGap, s.last, last)
		}
		s.started, s.before, s.first = true, s.last, s.manifest
	case kindOpened:
		s.opens, s.crashes, s.alive = f.Number, 0, true
		c.Uint(&s.crashes)
	case kindClosed:
		s.alive = false
	case kindSeal:
		c.String(&s.sealed)
	default:
		return fmt.Errorf("unknown frame kind %d: a newer version wrote the blob", f.Kind)
	}
	return c.End()
}

// groupFrames returns the frames of a group. most is the maximum payload of a frame.
func groupFrames(number uint64, changes logstore.Parts, most int) []chain.Frame {
	var frames []chain.Frame
	for _, block := range changes.Blocks(most) {
		frames = append(frames, chain.Frame{Kind: kindMore, Number: number, Payload: block})
	}
	if len(frames) == 1 {
		frames[0].Kind = kindGroup
	} else {
		frames[0].Kind, frames[len(frames)-1].Kind = kindFirst, kindLast
	}
	return frames
}

// numbered returns a frame whose payload code encodes.
func numbered(kind byte, number uint64, code func(*logstore.Coder)) chain.Frame {
	var c logstore.Coder
	code(&c)
	return chain.Frame{Kind: kind, Number: number, Payload: c.Buf}
}
