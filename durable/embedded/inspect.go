package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// A header is what a bbolt file says of itself in its two meta pages, the
// newest of those that are whole (go.etcd.io/bbolt/internal/common/meta.go).
type header struct {
	pageSize  int64
	root      uint64 // the page of the bucket that all others are in
	freelist  uint64
	highWater uint64 // no page from here on is in use
	txid      uint64
}

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	metaStart   = 16 // after the page's own header
	metaSize    = 64
)

var errNoHeader = errors.New("it has no valid header")

// readHeader reads the header of a file of the given size, and checks that the
// file is as long as its header says: bbolt maps it into memory, and to touch
// what is not there ends the process.
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
	if newest.highWater > uint64(size) { // and what it is multiplied with would overflow
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

// inspect looks at an existing file before the database writes to it, and
// changes nothing. A file that is not large is checked as a whole.
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

// maxVerified is the size up to which a file is checked as a whole whenever it
// is opened, which takes some 50 ms. Syncs see to it that no crash damages it;
// what is left are disks that do.
const maxVerified = 32 << 20
