package runs

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// FormatVersion is the version of manifests and files. Those of a newer one are
// refused.
const FormatVersion = 1

// maxFile is more than any file has, in bytes.
const maxFile = 1 << 40

// version is what a manifest says: the base at one time. It does not change.
type version struct {
	last uint64 // the last group that is in the runs
	runs []*run // the newest first
}

// run is files with records in the order of their keys, one file after the other.
type run struct {
	files   []*file
	merging bool // it is being merged; Base.mu protects this
}

// file is what a manifest says of a file.
type file struct {
	name        string
	size        uint64 // in bytes
	tail        uint64 // how many of them are the tail
	sum         uint32 // checksum of the tail
	first, last []byte // keys
	records     uint64 // with deletions
	deletions   uint64
}

// decodeManifest reads a manifest. Without one, there is nothing in the base.
func decodeManifest(manifest []byte) (*version, error) {
	v := &version{}
	if len(manifest) == 0 {
		return v, nil
	}
	c := &logstore.Coder{Buf: bytes.Clone(manifest), Reading: true}
	v.code(c)
	err := c.End()
	if err == nil {
		err = v.check()
	}
	if err != nil {
		return nil, &ManifestError{err}
	}
	return v, nil
}

func (v *version) encode() []byte {
	c := &logstore.Coder{}
	v.code(c)
	return c.Buf
}

func (v *version) code(c *logstore.Coder) {
	format := byte(FormatVersion)
	c.Byte(&format)
	if format != FormatVersion {
		c.Fail(fmt.Errorf("format version is %d; want %d", format, FormatVersion))
	}
	c.Uint(&v.last)
	codeList(c, &v.runs, func(r **run) {
		if c.Reading {
			*r = &run{}
		}
		codeList(c, &(*r).files, func(f **file) {
			if c.Reading {
				*f = &file{}
			}
			(*f).code(c)
		})
	})
}

func (f *file) code(c *logstore.Coder) {
	sum := uint64(f.sum)
	c.String(&f.name)
	c.Uint(&f.size)
	c.Uint(&f.tail)
	c.Uint(&sum)
	codeBytes(c, &f.first)
	codeBytes(c, &f.last)
	c.Uint(&f.records)
	c.Uint(&f.deletions)
	if sum > math.MaxUint32 {
		c.Fail(errForm)
	}
	if c.Reading { // others may read f while it is written
		f.sum = uint32(sum)
	}
}

// codeList codes a list whose elements take a byte at least.
func codeList[T any](c *logstore.Coder, list *[]T, code func(*T)) {
	n := uint64(len(*list))
	c.Uint(&n)
	if c.Reading {
		if n > uint64(len(c.Buf)) {
			c.Fail(logstore.ErrShort)
			return
		}
		*list = make([]T, n)
	}
	for i := range *list {
		if c.Err == nil {
			code(&(*list)[i])
		}
	}
}

// codeBytes codes bytes. Those that are read are part of c.Buf.
func codeBytes(c *logstore.Coder, v *[]byte) {
	n := uint64(len(*v))
	c.Uint(&n)
	if c.Reading {
		*v = c.Take(n)
		return
	}
	c.Buf = append(c.Buf, *v...)
}

// check reports what a manifest cannot say: readers rely on it.
func (v *version) check() error {
	for _, r := range v.runs {
		var before []byte
		for _, f := range r.files {
			switch {
			case f.tail > f.size || f.size > maxFile:
				return fmt.Errorf("file %s has %d bytes and a tail of %d", f.name, f.size, f.tail)
			case len(f.first) == 0, bytes.Compare(f.first, f.last) > 0, bytes.Compare(before, f.first) >= 0:
				return fmt.Errorf("keys of file %s are out of order", f.name)
			}
			before = f.last
		}
		if len(r.files) == 0 {
			return errors.New("a run has no files")
		}
	}
	return nil
}

// size returns how many bytes a run has.
func (r *run) size() (bytes uint64) {
	for _, f := range r.files {
		bytes += f.size
	}
	return bytes
}

// counts returns how many records a run has, and how many of them are deletions.
func (r *run) counts() (records, deletions uint64) {
	for _, f := range r.files {
		records, deletions = records+f.records, deletions+f.deletions
	}
	return records, deletions
}
