package runs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math/bits"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tail is the part of a file that locates its records.
type tail struct {
	blocks []block
	filter []byte
	size   int // memory use, in bytes
}

// block describes a block of a file.
type block struct {
	first  []byte // key
	offset uint64
	size   uint64
	sum    uint32
}

// isLarge reports whether a block certainly has only one record, which is large. A block with several
// records has at most Config.BlockSize bytes of keys and values, and fewer bytes of lengths than twice
// that. All versions have used the same size.
func (b *Base) isLarge(o block) bool { return o.size > 4*uint64(b.cfg.BlockSize) }

const blockMemory = 48 // memory use of a block without its first key, in bytes

func (t *tail) code(c *logstore.Coder) {
	format := byte(FormatVersion)
	c.Byte(&format)
	if format != FormatVersion {
		c.Fail(fmt.Errorf("format version is %d; want %d", format, FormatVersion))
	}
	offset := uint64(0)
	codeList(c, &t.blocks, func(b *block) {
		sum := uint64(b.sum)
		codeBytes(c, &b.first)
		c.Uint(&b.size)
		c.Uint(&sum)
		b.offset, b.sum = offset, uint32(sum)
		offset += b.size
	})
	codeBytes(c, &t.filter)
}

// decodeTail decodes the tail of a file whose blocks have the given total size.
func decodeTail(p []byte, bytes uint64) (*tail, error) {
	t := &tail{}
	c := &logstore.Coder{Buf: p, Reading: true}
	t.code(c)
	if err := c.End(); err != nil {
		return nil, err
	}
	for _, b := range t.blocks {
		if b.offset > bytes || b.size > bytes-b.offset {
			return nil, errForm
		}
	}
	if len(t.blocks) == 0 {
		return nil, errForm
	}
	t.size = len(p) + blockMemory*len(t.blocks)
	return t, nil
}

// find returns the index of the last block whose first key is less than before, or 0.
func (t *tail) find(before []byte) int {
	n := sort.Search(len(t.blocks), func(i int) bool { return bytes.Compare(t.blocks[i].first, before) >= 0 })
	return max(n-1, 0)
}

// The Bloom filter has 16 bits per key and sets 8 of them. For 1 in 1,700 missing keys it reports a
// false match.
const (
	filterBits   = 16
	filterHashes = 8
)

func makeFilter(hashes []uint64) []byte {
	filter := make([]byte, (len(hashes)*filterBits+7)/8)
	for _, h := range hashes {
		for bit := range filterSlots(h, len(filter)) {
			filter[bit/8] |= 1 << (bit % 8)
		}
	}
	return filter
}

// mayHave reports whether the file may contain a key with the given hash. False is certain.
func (t *tail) mayHave(hash uint64) bool {
	for bit := range filterSlots(hash, len(t.filter)) {
		if t.filter[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// filterSlots yields the bits of a hash in a filter of the given size in bytes.
func filterSlots(hash uint64, bytes int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		step := bits.RotateLeft64(hash, 32) | 1
		for range filterHashes {
			if bytes == 0 || !yield(hash%(8*uint64(bytes))) {
				return
			}
			hash += step
		}
	}
}

// record is a record of a block.
type record struct {
	key, value []byte
	load       func() ([]byte, error) // reads the value, if it is large
}

func (r record) isDeletion() bool { return r.value == nil && r.load == nil }

// read returns the value, or nil for a deletion.
func (r record) read() ([]byte, error) {
	if r.load != nil {
		return r.load()
	}
	return r.value, nil
}

// decodeRecord returns the first record of a block and the rest of the block.
func decodeRecord(p []byte) (r record, rest []byte, ok bool) {
	n, size := binary.Uvarint(p)
	if size <= 0 || n == 0 || n > uint64(len(p)-size) {
		return record{}, nil, false
	}
	r.key, p = p[size:][:n:n], p[size:][n:]
	n, size = binary.Uvarint(p)
	if size <= 0 || n > uint64(len(p)-size)+1 {
		return record{}, nil, false
	}
	if p = p[size:]; n > 0 {
		r.value, p = p[:n-1:n-1], p[n-1:]
	}
	return r, p, true
}

// groupKey is the size of a key's table and group number, in bytes.
const groupKey = 1 + 8

// isGrouped reports whether a key belongs to a grouped table.
func isGrouped(tables logstore.Tables, key []byte) bool {
	return len(key) >= groupKey && int(key[0]) < len(tables) && tables[key[0]].Grouped
}

// fileWriter writes records into files. Keys must be added in ascending order.
type fileWriter struct {
	ctx  context.Context
	b    *Base
	last uint64 // last group; part of the file names

	tried []string // names of files that may exist
	files []*file  // complete files

	// The current file.
	name    string
	content []byte
	block   int // offset of the last block
	tail    tail
	hashes  []uint64
	group   []byte // last group in hashes
	key     []byte // last key
	largest int    // size of the largest value, in bytes
	counts  file
}

// newWriter returns a writer whose buffer is allocated for size bytes of records.
func (b *Base) newWriter(ctx context.Context, last uint64, size int) *fileWriter {
	return &fileWriter{ctx: ctx, b: b, last: last, content: make([]byte, 0, min(size, b.cfg.FileSize)*9/8)}
}

// add adds a record, or a deletion if value is nil.
func (w *fileWriter) add(key, value []byte) error {
	size, n := len(key)+len(value), len(w.content)
	if n > w.block && n-w.block+size > w.b.cfg.BlockSize {
		w.endBlock()
		if n+size > w.b.cfg.FileSize {
			if err := w.endFile(); err != nil {
				return err
			}
		}
	}
	if w.name == "" {
		w.name = fmt.Sprintf("base-%010d-%s", w.last, strings.ToLower(rand.Text()))
	}
	if len(w.content) == w.block {
		w.tail.blocks = append(w.tail.blocks, block{first: bytes.Clone(key)})
	}
	w.content = binary.AppendUvarint(w.content, uint64(len(key)))
	w.content = append(w.content, key...)
	if value == nil {
		w.content = append(w.content, 0)
		w.counts.deletions++
	} else {
		w.content = binary.AppendUvarint(w.content, uint64(len(value))+1)
		w.content = append(w.content, value...)
	}
	w.counts.records++
	w.largest = max(w.largest, len(value))
	w.key = append(w.key[:0], key...)
	w.hashes = append(w.hashes, xxhash.Sum64(key))
	if isGrouped(w.b.cfg.Tables, key) && !bytes.Equal(w.group, key[:groupKey]) {
		w.group = append(w.group[:0], key[:groupKey]...)
		w.hashes = append(w.hashes, xxhash.Sum64(w.group))
	}
	return nil
}

func (w *fileWriter) endBlock() {
	b := &w.tail.blocks[len(w.tail.blocks)-1]
	content := w.content[w.block:]
	b.size, b.sum = uint64(len(content)), w.b.checksum(w.name, content)
	w.block = len(w.content)
}

// endFile stores the current file, if any.
func (w *fileWriter) endFile() error {
	if w.name == "" {
		return nil
	}
	if len(w.content) > w.block {
		w.endBlock()
	}
	w.tail.filter = makeFilter(w.hashes)
	c := &logstore.Coder{Buf: w.content}
	w.tail.code(c)
	content := c.Buf
	f := &file{
		name: w.name, size: uint64(len(content)), tail: uint64(len(content) - w.block), sum: w.b.checksum(w.name, content[w.block:]),
		first: w.tail.blocks[0].first, last: bytes.Clone(w.key), records: w.counts.records, deletions: w.counts.deletions,
	}
	w.tried = append(w.tried, w.name)
	w.b.addKnown(w.name)
	if err := w.b.cfg.Files.Create(w.ctx, f.name, content); err != nil {
		return fmt.Errorf("create base file %s: %w", f.name, err)
	}
	w.files = append(w.files, f)
	w.b.pacer.Step(w.largest)
	*w = fileWriter{ctx: w.ctx, b: w.b, last: w.last, tried: w.tried, files: w.files, content: content[:0], hashes: w.hashes[:0]}
	return nil
}
