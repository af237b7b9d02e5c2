package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// readAhead is the maximum size of one request of a long scan, in bytes. A scan starts with one
// block.
const readAhead = 1 << 20

// read reads a part of a file. Only the base that commits manifests knows that a missing file is
// damage. For other readers, the manifest may be too old.
func (b *Base) read(ctx context.Context, f *file, offset uint64, p []byte) error {
	err := b.cfg.Files.ReadAt(ctx, f.name, int64(offset), p)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &DamageError{f.name, int64(offset), errShort}
	case errors.Is(err, ErrGone) && b.cfg.Commit != nil:
		return &DamageError{f.name, int64(offset), err}
	case err != nil:
		return fmt.Errorf("read base file %s at %d: %w", f.name, offset, err)
	}
	return nil
}

// load returns a value from the cache or reads it. Concurrent calls for the same place share one
// read.
func (b *Base) load(c *lru, at place, read func() (value any, size int, err error)) (any, error) {
	if value := c.get(at); value != nil {
		return value, nil
	}
	value, err, _ := b.loading.Do(at.file+" "+strconv.FormatUint(at.offset, 10), func() (any, error) {
		value, size, err := read()
		if err == nil {
			c.put(at, value, size)
		}
		return value, err
	})
	return value, err
}

// tailOf returns the tail of a file.
func (b *Base) tailOf(f *file) (*tail, error) {
	offset := f.size - f.tail
	value, err := b.load(&b.cfg.Cache.tails, place{f.name, offset}, func() (any, int, error) {
		p := make([]byte, f.tail)
		if err := b.read(b.ctx, f, offset, p); err != nil {
			return nil, 0, err
		}
		if b.checksum(f.name, p) != f.sum {
			return nil, 0, &DamageError{f.name, int64(offset), errChecksum}
		}
		t, err := decodeTail(p, offset)
		if err != nil {
			return nil, 0, &DamageError{f.name, int64(offset), err}
		}
		return t, t.size, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*tail), nil
}

// block returns a block of a file.
func (b *Base) block(f *file, t *tail, i int) ([]byte, error) {
	value, err := b.load(&b.cfg.Cache.blocks, place{f.name, t.blocks[i].offset}, func() (any, int, error) {
		p, err := b.readBlocks(b.ctx, f, t.blocks[i:i+1])
		return p, len(p), err
	})
	if err != nil {
		return nil, err
	}
	return value.([]byte), nil
}

// readBlocks reads adjacent blocks with one request.
func (b *Base) readBlocks(ctx context.Context, f *file, blocks []block) ([]byte, error) {
	first, last := blocks[0], blocks[len(blocks)-1]
	p := make([]byte, last.offset+last.size-first.offset)
	if err := b.read(ctx, f, first.offset, p); err != nil {
		return nil, err
	}
	for _, o := range blocks {
		if b.checksum(f.name, p[o.offset-first.offset:][:o.size]) != o.sum {
			return nil, &DamageError{f.name, int64(o.offset), errChecksum}
		}
	}
	return p, nil
}

// Damage reads all files and returns the damaged parts, by file and offset. It skips missing files.
func (b *Base) Damage(ctx context.Context) (all []*DamageError, err error) {
	for _, r := range b.version().runs {
		for _, f := range r.files {
			damaged, err := b.damageOf(ctx, f)
			if err != nil && !errors.Is(err, ErrGone) {
				return nil, err
			}
			all = append(all, damaged...)
		}
	}
	return all, nil
}

// damageOf returns the damaged parts of a file.
func (b *Base) damageOf(ctx context.Context, f *file) (all []*DamageError, err error) {
	t, err := b.tailOf(f)
	if errors.Is(err, ErrGone) {
		return nil, err
	}
	if damage, is := errors.AsType[*DamageError](err); is {
		return []*DamageError{damage}, nil // only the tail says where the blocks are
	}
	if err != nil {
		return nil, err
	}
	for rest := t.blocks; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].offset+rest[n].size-rest[0].offset <= readAhead {
			n++
		}
		_, err := b.readBlocks(ctx, f, rest[:n])
		if damage, is := errors.AsType[*DamageError](err); is {
			all = append(all, damage)
			n = 1 + slices.IndexFunc(rest, func(o block) bool { return int64(o.offset) == damage.Offset })
		} else if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return all, nil
}

// reader is a [logstore.Reader] of a version.
type reader struct {
	b *Base
	v *version
}

func tableKey(t logstore.Table, key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), byte(t)), key...)
}

// prefixEnd returns the first key after all keys with the prefix, or nil if no key follows.
func prefixEnd(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xff {
			next := bytes.Clone(prefix[:n])
			next[n-1]++
			return next
		}
	}
	return nil
}

// after returns the next possible key.
func after(key []byte) []byte { return append(bytes.Clone(key), 0) }

// unreadable converts the error of a damaged file to a [logstore.RangeError] for the keys from from
// up to, but not including, to. It returns other errors unchanged.
func unreadable(from, to []byte, err error) error {
	if !errors.As(err, new(*DamageError)) {
		return err
	}
	gap := &logstore.RangeError{From: bytes.Clone(from[1:]), Cause: err}
	if to[0] == from[0] {
		gap.To = bytes.Clone(to[1:])
	}
	return gap
}

// from returns the index of the first file that may contain key or a later key.
func (r *run) from(key []byte) int {
	return sort.Search(len(r.files), func(i int) bool { return bytes.Compare(r.files[i].last, key) >= 0 })
}

// Get implements [logstore.Reader].
func (r *reader) Get(t logstore.Table, key []byte) ([]byte, error) {
	key = tableKey(t, key)
	hash, end := xxhash.Sum64(key), append(key, 0)
	for _, run := range r.v.runs {
		i := run.from(key)
		if i == len(run.files) || bytes.Compare(run.files[i].first, key) > 0 {
			continue
		}
		t, err := r.b.tailOf(run.files[i])
		if err != nil {
			return nil, unreadable(key, end, err)
		}
		if !t.mayHave(hash) {
			continue
		}
		found, err := r.b.lastIn(run.files[i], t, end)
		if err != nil || bytes.Equal(found.key, key) {
			return found.value, unreadable(key, end, err)
		}
	}
	return nil, nil
}

// Scan implements [logstore.Reader].
func (r *reader) Scan(t logstore.Table, from []byte, f func(key []byte, value func() ([]byte, error)) (stop bool, err error)) error {
	var all merged
	for _, run := range r.v.runs {
		all = append(all, &cursor{ctx: r.b.ctx, b: r.b, run: run, end: prefixEnd([]byte{byte(t)})})
	}
	return all.scan(tableKey(t, from), f)
}

// Group implements [logstore.Reader].
func (r *reader) Group(t logstore.Table, group uint64, f func(key []byte, value func() ([]byte, error)) error) error {
	prefix := tableKey(t, logstore.NumberKey(group))
	with, err := r.b.withGroup(r.v.runs, prefix)
	if err != nil {
		return unreadable(prefix, prefixEnd(prefix), err)
	}
	var all merged
	for _, run := range with {
		all = append(all, &cursor{ctx: r.b.ctx, b: r.b, run: run, end: prefixEnd(prefix)})
	}
	return all.scan(prefix, func(key []byte, value func() ([]byte, error)) (bool, error) { return false, f(key, value) })
}

// withGroup returns the runs that may contain records of a group. It consults one file per run, the
// first one that ends after the group's prefix. That file contains records of the group if any file
// of the run does.
func (b *Base) withGroup(runs []*run, prefix []byte) (with []*run, err error) {
	hash, end := xxhash.Sum64(prefix), prefixEnd(prefix)
	for _, r := range runs {
		i := r.from(prefix)
		if i == len(r.files) || end != nil && bytes.Compare(r.files[i].first, end) >= 0 {
			continue
		}
		t, err := b.tailOf(r.files[i])
		if err != nil {
			return nil, err
		}
		if t.mayHave(hash) {
			with = append(with, r)
		}
	}
	return with, nil
}

// Last implements [logstore.Reader].
func (r *reader) Last(t logstore.Table, group uint64) ([]byte, error) {
	prefix := tableKey(t, logstore.NumberKey(group))
	with, err := r.b.withGroup(r.v.runs, prefix)
	if err != nil {
		return nil, unreadable(prefix, prefixEnd(prefix), err)
	}
	for before := prefixEnd(prefix); ; {
		var last record
		for _, run := range with { // newest first
			found, err := r.b.lastBefore(run, before)
			if err != nil {
				return nil, unreadable(prefix, prefixEnd(prefix), err)
			}
			if bytes.Compare(found.key, last.key) > 0 {
				last = found
			}
		}
		switch {
		case !bytes.HasPrefix(last.key, prefix):
			return nil, nil
		case !last.isDeletion():
			return last.key[1:], nil
		}
		before = last.key // a deletion
	}
}

// lastBefore returns the last record of a run whose key is less than before.
func (b *Base) lastBefore(r *run, before []byte) (last record, err error) {
	i := sort.Search(len(r.files), func(i int) bool { return bytes.Compare(r.files[i].first, before) >= 0 })
	if i == 0 {
		return record{}, nil
	}
	f := r.files[i-1]
	t, err := b.tailOf(f)
	if err != nil {
		return record{}, err
	}
	if n := t.find(before); b.isLarge(t.blocks[n]) {
		return b.large(b.ctx, f, t.blocks[n:n+1]), nil
	}
	return b.lastIn(f, t, before)
}

// large returns the record of a large block. It does not read the value.
func (b *Base) large(ctx context.Context, f *file, at []block) record {
	return record{key: at[0].first, load: func() ([]byte, error) {
		p, err := b.readBlocks(ctx, f, at)
		if err != nil {
			return nil, unreadable(at[0].first, after(at[0].first), err)
		}
		r, _, ok := decodeRecord(p)
		if !ok {
			return nil, &DamageError{f.name, int64(at[0].offset), errForm}
		}
		return r.value, nil
	}}
}

// lastIn returns the last record of a file whose key is less than before.
func (b *Base) lastIn(f *file, t *tail, before []byte) (last record, err error) {
	n := t.find(before)
	p, err := b.block(f, t, n)
	for err == nil && len(p) > 0 {
		next, rest, ok := decodeRecord(p)
		if !ok {
			return record{}, &DamageError{f.name, int64(t.blocks[n].offset), errForm}
		}
		if bytes.Compare(next.key, before) >= 0 {
			break
		}
		last, p = next, rest
	}
	return last, err
}

// cursor iterates over the records of a run.
type cursor struct {
	ctx  context.Context
	b    *Base
	run  *run
	end  []byte // end of the range (exclusive); nil for none
	span uint64 // size of the next read in bytes; 0 for a single block

	ok bool // record is valid
	record
	damage error  // reason why the records from key up to, but not including, to are unreadable
	to     []byte // set with damage

	file  int // index of the next file
	now   *file
	tail  *tail  // of now
	block int    // index of the next block
	rest  []byte // unread part of the blocks read so far
	at    uint64 // offset of the last read
}

// seek moves to the first record whose key is at least from.
func (c *cursor) seek(from []byte) error {
	c.file = c.run.from(from)
	if c.file < len(c.run.files) && bytes.Compare(c.run.files[c.file].first, from) < 0 {
		if err := c.open(); err != nil {
			return c.stop(from, after(c.now.last), err)
		}
		c.block = c.tail.find(after(from))
	}
	for {
		err := c.next()
		if c.damage != nil && bytes.Compare(c.key, from) < 0 {
			c.key = from
		}
		if err != nil || !c.ok || bytes.Compare(c.key, from) >= 0 {
			return err
		}
	}
}

// stop positions the cursor at the start of a damaged range, so that a scan first returns the
// records of other runs before the range. It returns errors other than damage.
func (c *cursor) stop(from, to []byte, err error) error {
	if !errors.As(err, new(*DamageError)) {
		return err
	}
	c.ok, c.record, c.to, c.damage = true, record{key: from}, to, err
	return nil
}

// open opens the next file.
func (c *cursor) open() (err error) {
	c.now = c.run.files[c.file]
	c.tail, err = c.b.tailOf(c.now)
	c.file, c.block = c.file+1, 0
	return err
}

// next moves to the next record.
func (c *cursor) next() (err error) {
	if len(c.rest) == 0 {
		if c.ok, err = c.fill(); err != nil || !c.ok || c.damage != nil || c.load != nil {
			return err
		}
	}
	if c.record, c.rest, c.ok = decodeRecord(c.rest); !c.ok {
		return &DamageError{c.now.name, int64(c.at), errForm}
	}
	c.ok = c.isWanted(c.key)
	return nil
}

func (c *cursor) isWanted(key []byte) bool { return c.end == nil || bytes.Compare(key, c.end) < 0 }

// fill reads the next blocks. It returns false at the end of the range.
func (c *cursor) fill() (ok bool, err error) {
	if c.tail == nil || c.block == len(c.tail.blocks) {
		if c.file == len(c.run.files) || !c.isWanted(c.run.files[c.file].first) {
			return false, nil
		}
		if err := c.open(); err != nil {
			err = c.stop(c.now.first, after(c.now.last), err)
			return c.ok && err == nil, err
		}
	}
	begin := c.tail.blocks[c.block]
	if !c.isWanted(begin.first) {
		return false, nil
	}
	c.at = begin.offset
	n := c.block + 1
	if c.b.isLarge(begin) {
		c.record, c.block = c.b.large(c.ctx, c.now, c.tail.blocks[c.block:n]), n
		return true, nil
	}
	c.load = nil
	if c.span == 0 { // another scan may start here: use the cache
		c.rest, err = c.b.block(c.now, c.tail, c.block)
		c.span = uint64(c.b.cfg.BlockSize)
	} else {
		for n < len(c.tail.blocks) && c.tail.blocks[n].offset+c.tail.blocks[n].size-begin.offset <= c.span && c.isWanted(c.tail.blocks[n].first) {
			n++
		}
		c.rest, err = c.b.readBlocks(c.ctx, c.now, c.tail.blocks[c.block:n])
		if n > c.block+1 && errors.As(err, new(*DamageError)) { // find out which block is damaged
			n, c.span = c.block+1, 1
			c.rest, err = c.b.readBlocks(c.ctx, c.now, c.tail.blocks[c.block:n])
		}
	}
	if err != nil {
		to := after(c.now.last)
		if n < len(c.tail.blocks) {
			to = c.tail.blocks[n].first
		}
		c.rest = nil
		err = c.stop(begin.first, to, err)
		return c.ok && err == nil, err
	}
	c.block, c.span = n, min(2*c.span, readAhead)
	return true, nil
}
