package runs

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// FormatVersion is the version of manifests and files. Other versions are refused.
const FormatVersion = 1

// maxFile is the upper limit of a plausible file size, in bytes.
const maxFile = 1 << 40

// version is the decoded content of a manifest. It is immutable.
type version struct {
	last uint64 // last group in the runs
	runs []*run // newest first
}

// run is a sequence of files with records sorted by key.
type run struct {
	files   []*file
	merging bool // a merge of it is running, or it is damaged; Base.mu protects this
}

// file describes a file in a manifest.
type file struct {
	name        string
	size        uint64 // in bytes
	tail        uint64 // size of the tail, in bytes
	sum         uint32 // checksum of the tail
	first, last []byte // keys
	records     uint64 // includes deletions
	deletions   uint64
}

// decodeManifest decodes a manifest. An empty manifest is an empty base.
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
	if c.Reading { // when encoding, other goroutines may read f
		f.sum = uint32(sum)
	}
}

// codeList encodes or decodes a list. An encoded element has at least one byte.
func codeList[T any](c *logstore.Coder, list *[]T, code func(*T)) {
	n := uint64(len(*list))
	c.Uint(&n)
	if c.Reading {
		if n > uint64(len(c.Buf)) {
			c.Fail(logstore.ErrTruncated)
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

// codeBytes encodes or decodes bytes. Decoded bytes are a part of c.Buf.
func codeBytes(c *logstore.Coder, v *[]byte) {
	n := uint64(len(*v))
	c.Uint(&n)
	if c.Reading {
		*v = c.Next(n)
		return
	}
	c.Buf = append(c.Buf, *v...)
}

// check verifies the properties of a decoded manifest that readers rely on.
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

// size returns the size of a run in bytes.
func (r *run) size() (bytes uint64) {
	for _, f := range r.files {
		bytes += f.size
	}
	return bytes
}

// counts returns the number of records in a run, and how many of them are deletions.
func (r *run) counts() (records, deletions uint64) {
	for _, f := range r.files {
		records, deletions = records+f.records, deletions+f.deletions
	}
	return records, deletions
}
