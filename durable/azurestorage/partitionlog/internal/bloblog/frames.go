package bloblog

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// The kinds of frames.
const (
	kindHeader byte = iota + 1 // the first frame of a blob
	kindGroup                  // a whole group
	kindFirst                  // the first part of a group that is more than a block
	kindMore                   // another part
	kindLast                   // the last
	kindBase                   // a manifest that counts from now on
	kindOpened                 // a new owner
	kindClosed                 // the owner left in good order
	kindSeal                   // the log goes on in the next blob
)

// Frame is a group, or a manifest that counts from then on.
type Frame struct {
	Number   uint64 // of the group, or of the last group that the manifest has
	Changes  []byte // of the group
	Manifest []byte // nil for a group
}

// history is what happened to the log so far.
type history struct {
	last     uint64 // the last group
	base     uint64 // the last group that the manifest has
	manifest []byte
	opens    uint64
	deaths   uint64
	alive    bool // the last owner did not close the log
}

// code codes a history, which every blob has in its header.
func (h *history) code(c *logstore.Coder) {
	c.Uint(&h.last)
	c.Uint(&h.base)
	manifest := string(h.manifest)
	c.String(&manifest)
	h.manifest = []byte(manifest)
	c.Uint(&h.opens)
	c.Uint(&h.deaths)
	c.Bool(&h.alive)
}

// open is what a new owner makes of a history.
func (h *history) open() {
	h.opens++
	if h.alive {
		h.deaths++
	}
	h.alive = true
}

// scan reads the frames of one blob after another.
type scan struct {
	chain *chain.Chain
	history
	started bool    // there was a header
	before  uint64  // the last group before the blob
	first   []byte  // the manifest that counted before the blob
	out     []Frame // that were read
	sealed  string  // the nonce of the next blob
	frames  int     // that were read

	number uint64 // of the group whose parts are being read
	parts  []byte
}

var errGap = errors.New("groups are missing")

// read takes the whole frames at the start of b, which is what the blob with the number has
// from offset on, and returns how long they are.
func (s *scan) read(number uint64, offset int64, b []byte) (int64, error) {
	begin := offset
	for len(b) > 0 && s.sealed == "" {
		f, rest, err := s.chain.DecodeFrame(b)
		if errors.Is(err, chain.ErrCut) {
			break
		}
		if err == nil && (offset == 0) != (f.Kind == kindHeader) {
			err = errors.New("a header is where the blob begins and nowhere else")
		}
		if err == nil {
			err = s.take(number, f)
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

// take takes a frame.
func (s *scan) take(blob uint64, f chain.Frame) error {
	switch f.Kind {
	case kindMore, kindLast:
		if s.parts == nil || f.Number != s.number {
			return errors.New("a part of a group without those before it")
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
	s.parts = nil // parts without an end were never acknowledged
	c := logstore.Coder{Buf: f.Payload, Reading: true}
	switch f.Kind {
	case kindGroup, kindLast:
		if f.Number != s.last+1 {
			return fmt.Errorf("%w: %d follows %d", errGap, f.Number, s.last)
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
			return fmt.Errorf("it is the header of blob %d", f.Number)
		}
		last := s.last
		if s.history.code(&c); s.started && s.last != last {
			return fmt.Errorf("%w: the blob goes on after %d, and the one before it ends with %d", errGap, s.last, last)
		}
		s.started, s.before, s.first = true, s.last, s.manifest
	case kindOpened:
		s.opens, s.deaths, s.alive = f.Number, 0, true
		c.Uint(&s.deaths)
	case kindClosed:
		s.alive = false
	case kindSeal:
		c.String(&s.sealed)
	default:
		return fmt.Errorf("it has frames of kind %d: it was written by a newer version", f.Kind)
	}
	return c.End()
}

// groupFrames returns the frames of a group.
func groupFrames(number uint64, changes []byte, most int) []chain.Frame {
	if len(changes) <= most {
		return []chain.Frame{{Kind: kindGroup, Number: number, Payload: changes}}
	}
	var frames []chain.Frame
	for kind := kindFirst; kind != kindLast; {
		n := min(most, len(changes))
		part := changes[:n]
		changes = changes[n:]
		f := chain.Frame{Kind: kind, Number: number, Payload: part}
		if kind = kindMore; len(changes) == 0 {
			f.Kind, kind = kindLast, kindLast
		}
		frames = append(frames, f)
	}
	return frames
}

// numbered returns a frame with a payload that code writes.
func numbered(kind byte, number uint64, code func(*logstore.Coder)) chain.Frame {
	var c logstore.Coder
	code(&c)
	return chain.Frame{Kind: kind, Number: number, Payload: c.Buf}
}
