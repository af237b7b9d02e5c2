package hubfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// header is the newest valid meta page of a bbolt file (go.etcd.io/bbolt/internal/common/meta.go).
type header struct {
	pageSize  int64
	root      uint64 // page of the root bucket
	freelist  uint64
	highWater uint64 // pages from this one on are unused
	txid      uint64
}

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	metaStart   = 16 // after the page header
	metaSize    = 64
)

var errNoHeader = errors.New("it has no valid header")

// readHeader reads the header of a file of the given size and verifies that the file is not
// truncated. bbolt maps the file into memory, and an access beyond its end would end the process.
func readHeader(f io.ReaderAt, size int64) (header, error) {
	var newest header
	for pageSize := int64(1024); pageSize <= 64<<10; pageSize *= 2 {
		for page := range int64(2) {
			h, ok := readMeta(f, page*pageSize)
			if ok && h.pageSize == pageSize && (newest.pageSize == 0 || h.txid > newest.txid) {
				newest = h
			}
		}
	}
	if newest.pageSize == 0 {
		return header{}, errNoHeader
	}
	if newest.highWater > uint64(size) { // the product below would overflow
		return header{}, fmt.Errorf("it is cut off: it has %d bytes and should have %d pages", size, newest.highWater)
	}
	if want := int64(newest.highWater) * newest.pageSize; size < want {
		return header{}, fmt.Errorf("it is cut off: it has %d bytes and should have %d", size, want)
	}
	return newest, nil
}

func readMeta(f io.ReaderAt, at int64) (header, bool) {
	var b [metaSize]byte
	if _, err := f.ReadAt(b[:], at+metaStart); err != nil {
		return header{}, false
	}
	order := binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(b[:56])
	if order.Uint32(b[0:]) != boltMagic || order.Uint32(b[4:]) != boltVersion || order.Uint64(b[56:]) != sum.Sum64() {
		return header{}, false
	}
	h := header{
		pageSize:  int64(order.Uint32(b[8:])),
		root:      order.Uint64(b[16:]),
		freelist:  order.Uint64(b[32:]),
		highWater: order.Uint64(b[40:]),
		txid:      order.Uint64(b[48:]),
	}
	return h, true
}

// inspect verifies an existing file before the database writes to it: the header, and all pages
// unless the file is large. It changes nothing.
func inspect(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h, err := readHeader(f, info.Size())
	if err != nil {
		return err
	}
	if info.Size() > maxVerified {
		return nil
	}
	return verify(f, h)
}

// maxVerified is the maximum size of a file whose pages are all verified when it is opened, which
// takes about 50 ms. Crashes do not damage a file, because it is synced, but disks can.
const maxVerified = 32 << 20

// verify verifies the pages of a bbolt file. Each page must be well formed, and either used once or
// free. Keys must be in order, and record pieces must have valid checksums. verify reads the file
// without mapping it, so that a wrong page number does not end the process.
//
// An error in the list of free pages would let the next write destroy a page in use.
func verify(f io.ReaderAt, h header) error {
	v := verifier{f: f, h: h, seen: make([]bool, h.highWater)}
	if h.highWater < 4 {
		return errors.New("it has too few pages")
	}
	v.seen[0], v.seen[1] = true, true
	if err := v.node(h.root, nil, nil, v.topLevel, 0); err != nil {
		return err
	}
	if h.freelist == ^uint64(0) {
		return nil // not kept in the file
	}
	if err := v.freelist(); err != nil {
		return err
	}
	for id, seen := range v.seen {
		if !seen {
			return fmt.Errorf("page %d is neither used nor free", id)
		}
	}
	return nil
}

type verifier struct {
	f    io.ReaderAt
	h    header
	seen []bool
}

// Layout of pages (go.etcd.io/bbolt/internal/common/page.go).
const (
	pageHead     = 16
	elementSize  = 16
	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	bucketFlag   = 0x01 // of a leaf element
	bucketHead   = 16
	maxDepth     = 64
)

// leafCheck verifies one element of a leaf.
type leafCheck func(isBucket bool, key, value []byte, depth int) error

// topLevel verifies an element of the root bucket.
func (v *verifier) topLevel(isBucket bool, key, value []byte, depth int) error {
	if !isBucket || len(value) < bucketHead {
		return errors.New("a bucket is malformed")
	}
	check := checkRecord
	if string(key) == hubBucket {
		check = anything
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return v.node(root, nil, nil, check, depth+1)
	}
	return v.elements(value[bucketHead:], nil, nil, check, depth+1)
}

// checkRecord verifies an element of a bucket of records.
func checkRecord(isBucket bool, key, value []byte, _ int) error {
	if isBucket {
		return errors.New("a bucket is among the records")
	}
	_, _, err := bucket{}.open(key, value)
	if err != nil {
		return fmt.Errorf("record %x: %w", key, errChecksum)
	}
	return nil
}

func anything(bool, []byte, []byte, int) error { return nil }

// page reads a page with its overflow pages and marks them as used.
func (v *verifier) page(id uint64) ([]byte, error) {
	if id < 2 || id >= v.h.highWater {
		return nil, errors.New("is out of range")
	}
	var head [pageHead]byte
	if _, err := v.f.ReadAt(head[:], int64(id)*v.h.pageSize); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	order := binary.NativeEndian
	if got := order.Uint64(head[:]); got != id {
		return nil, fmt.Errorf("has the page number %d", got)
	}
	overflow := uint64(order.Uint32(head[12:]))
	if overflow >= v.h.highWater-id {
		return nil, errors.New("extends beyond the file")
	}
	for used := id; used <= id+overflow; used++ {
		if v.seen[used] {
			return nil, errors.New("is used twice")
		}
		v.seen[used] = true
	}
	b := make([]byte, (int64(overflow)+1)*v.h.pageSize)
	if _, err := v.f.ReadAt(b, int64(id)*v.h.pageSize); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return b, nil
}

// node verifies the tree of pages below id. Its keys must be at least from and less than before;
// nil means no bound.
func (v *verifier) node(id uint64, from, before []byte, check leafCheck, depth int) error {
	b, err := v.page(id)
	if err == nil {
		err = v.elements(b, from, before, check, depth)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements verifies the elements of a page.
func (v *verifier) elements(b []byte, from, before []byte, check leafCheck, depth int) error {
	order := binary.NativeEndian
	if len(b) < pageHead || depth > maxDepth {
		return errors.New("is nested too deeply or too short")
	}
	flags, count := order.Uint16(b[8:]), int(order.Uint16(b[10:]))
	if flags != branchFlag && flags != leafFlag {
		return fmt.Errorf("is of type %#x", flags)
	}
	if pageHead+count*elementSize > len(b) {
		return errors.New("has more elements than fit")
	}
	var below []uint64
	var keys [][]byte
	for i := range count {
		e := b[pageHead+i*elementSize:]
		var key, value []byte
		var err error
		if flags == branchFlag {
			key, _, err = element(e, order.Uint32(e), order.Uint32(e[4:]), 0)
			below = append(below, order.Uint64(e[8:]))
		} else {
			key, value, err = element(e, order.Uint32(e[4:]), order.Uint32(e[8:]), order.Uint32(e[12:]))
		}
		switch {
		case err != nil:
			return err
		case from != nil && bytes.Compare(key, from) < 0, before != nil && bytes.Compare(key, before) >= 0:
			return fmt.Errorf("key %x is out of place", key)
		case i > 0 && bytes.Compare(keys[i-1], key) >= 0:
			return fmt.Errorf("key %x is out of order", key)
		}
		keys = append(keys, key)
		if flags == leafFlag {
			if err := check(order.Uint32(e)&bucketFlag != 0, key, value, depth); err != nil {
				return err
			}
		}
	}
	for i, id := range below {
		next := before
		if i+1 < len(keys) {
			next = keys[i+1]
		}
		if err := v.node(id, keys[i], next, check, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// element returns the key and value of the element at the start of b.
func element(b []byte, pos, keySize, valueSize uint32) (key, value []byte, err error) {
	start, mid, end := uint64(pos), uint64(pos)+uint64(keySize), uint64(pos)+uint64(keySize)+uint64(valueSize)
	if end > uint64(len(b)) {
		return nil, nil, errors.New("a record extends beyond its page")
	}
	return b[start:mid], b[mid:end], nil
}

// freelist verifies the list of free pages.
func (v *verifier) freelist() error {
	b, err := v.page(v.h.freelist)
	if err != nil {
		return fmt.Errorf("page %d: %w", v.h.freelist, err)
	}
	order := binary.NativeEndian
	flags, n := order.Uint16(b[8:]), uint64(order.Uint16(b[10:]))
	if flags != freelistFlag {
		return fmt.Errorf("page %d is of type %#x; want the list of free pages", v.h.freelist, flags)
	}
	ids := b[pageHead:]
	if n == 0xFFFF && len(ids) >= 8 { // the first entry is the count
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return errors.New("the list of free pages is longer than its page")
	}
	for i := range n {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= v.h.highWater {
			return fmt.Errorf("free page %d is out of range", id)
		}
		if v.seen[id] {
			return fmt.Errorf("page %d is both free and in use", id)
		}
		v.seen[id] = true
	}
	return nil
}
