// Package powerloss provides a disk for tests that loses unsynced writes.
package powerloss

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
)

// Block is the size, in bytes, of the units that a disk usually writes as a whole.
const Block = 512

// Disk holds the files of one folder. Readers see a write immediately, as with a page cache.
// The write is on the disk once it is synced. Until then, any of its blocks of [Block] bytes
// may be on the disk or not. The name of a new file is on the disk once the folder is synced.
type Disk struct {
	dir string

	mu    sync.Mutex // protects the fields below
	files map[string]*state
	names map[string]bool // of files whose names are on the disk
	// replaced holds the old content of files that a rename replaced, until the rename is
	// durable.
	replaced map[string][]byte
	counts   map[string]int
	before   func(call string)
}

// state is the content of a file on the disk.
type state struct {
	durable []byte
	pending []write // unsynced, in order
}

type write struct {
	at   int64
	data []byte
}

// Install puts a Disk under a folder until restore is called. The existing files are on the
// disk.
func Install(dir string) (d *Disk, restore func(), err error) {
	d = &Disk{dir: dir, files: make(map[string]*state), names: make(map[string]bool), counts: make(map[string]int), replaced: make(map[string][]byte)}
	if err := d.SyncDir(dir); err != nil {
		return nil, nil, err
	}
	clear(d.counts)
	return d, disk.Replace(dir, d), nil
}

// Before makes the disk call f before each of its operations. The argument is "open", "write",
// "sync", "rename" or "sync folder". A nil f ends this.
func (d *Disk) Before(f func(call string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

// Count returns how often an operation was called. Before lists the operations.
func (d *Disk) Count(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[call]
}

func (d *Disk) called(call string) {
	d.mu.Lock()
	d.counts[call]++
	before := d.before
	d.mu.Unlock()
	if before != nil {
		before(call)
	}
}

// Open implements [disk.Disk].
func (d *Disk) Open(path string) (disk.File, error) {
	d.called("open")
	f, err := disk.System{}.Open(path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	name := filepath.Base(path)
	if d.files[name] == nil {
		there, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d.files[name] = &state{durable: there}
		if !d.names[name] { // written without the disk and unsynced
			d.files[name] = &state{pending: []write{{0, there}}}
		}
	}
	return &file{File: f, disk: d, state: d.files[name]}, nil
}

// Free implements [disk.Disk].
func (d *Disk) Free(dir string) (int64, error) { return disk.System{}.Free(dir) }

// SyncDir implements [disk.Disk].
func (d *Disk) SyncDir(dir string) error {
	d.called("sync folder")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range entries {
		d.names[e.Name()] = true
	}
	clear(d.replaced)
	return nil
}

// Rename implements [disk.Disk] for files that are written without the disk. Content of from
// that was not synced through the disk may be lost.
func (d *Disk) Rename(from, to string) error {
	d.called("rename")
	was, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	is, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	from, to = filepath.Base(from), filepath.Base(to)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replaced[to] = was
	if s := d.files[from]; s == nil || !slices.Equal(s.durable, is) {
		d.files[to] = &state{pending: []write{{0, is}}}
	}
	delete(d.files, from)
	return nil
}

type file struct {
	disk.File
	disk  *Disk
	state *state
}

func (f *file) WriteAt(b []byte, at int64) (int, error) {
	f.disk.called("write")
	n, err := f.File.WriteAt(b, at)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.state.pending = append(f.state.pending, write{at, slices.Clone(b[:n])})
	return n, err
}

func (f *file) Sync() error {
	f.disk.called("sync")
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	for _, w := range f.state.pending {
		f.state.durable = w.apply(f.state.durable, 0, len(w.data))
	}
	f.state.pending = nil
	return nil
}

// apply applies a part of the write to the content b.
func (w write) apply(b []byte, from, to int) []byte {
	if end := int(w.at) + to; end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[int(w.at)+from:], w.data[from:to])
	return b
}

// Lose writes to another folder what a power loss at this moment could leave. Files that were
// never opened through the disk are assumed to be synced; Lose copies them with copyFile.
// copyFile must copy a consistent state of a file.
func (d *Disk) Lose(r *rand.Rand, to string, copyFile func(from, to string) error) error {
	d.mu.Lock()
	left := make(map[string][]byte)
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		left[name] = d.files[name].afterLoss(r)
	}
	names, replaced := maps.Clone(d.names), maps.Clone(d.replaced)
	d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, opened := left[e.Name()]
		was, isNew := replaced[e.Name()]
		switch {
		case isNew && r.IntN(2) == 0: // the rename is lost
			err = os.WriteFile(filepath.Join(to, e.Name()), was, 0o600)
		case !names[e.Name()] && r.IntN(2) == 0: // the name of the new file is lost
		case opened:
			err = os.WriteFile(filepath.Join(to, e.Name()), content, 0o600)
		default:
			err = copyFile(filepath.Join(d.dir, e.Name()), filepath.Join(to, e.Name()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// afterLoss returns a possible content of the file after a power loss.
func (s *state) afterLoss(r *rand.Rand) []byte {
	b := slices.Clone(s.durable)
	some := r.Float64() // the probability that an unsynced block reached the disk
	for i, w := range s.pending {
		for from := 0; from < len(w.data); {
			to := min(len(w.data), from+Block-(int(w.at)+from)%Block)
			if r.Float64() < some {
				torn := to
				if i == len(s.pending)-1 && r.IntN(50) == 0 {
					torn = from + r.IntN(to-from)
				}
				b = w.apply(b, from, torn)
			}
			from = to
		}
	}
	return b
}

// CopyFile copies a file.
func CopyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fs.FileMode(0o600))
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
