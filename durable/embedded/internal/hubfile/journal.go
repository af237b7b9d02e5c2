package hubfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// journal implements [logstore.Log]. One sync makes a group durable. The database would need two
// syncs and writes whole pages.
//
// The journal has two files, used in turn: one is written while the groups of the other go to the
// database. The files are overwritten, not truncated, because a sync is faster if the file does not
// grow. Each record contains the number of its group. Numbers have no gaps and are never used
// again, so records of earlier rotations are recognized. If groups are lost, numbering continues
// after the last lost group.
type journal struct {
	path    string
	files   [2]disk.File
	sizes   [2]int64
	current int   // index of the file being written
	offset  int64 // offset of the next record
	seed    uint32
	relaxed bool
	buf     []byte
	check   func() error // returns an error if the hub's file is not at its path
}

// Layout of a record:
//
//	payload length (4 bytes) · checksum (4) · number (8) · flags (1) · payload · padding to 8 bytes
//
// The checksum covers the hub's ID and the record without the checksum and the padding. It detects
// the journal of another hub.
const (
	recordHead  = 17
	recordAlign = 8
	flagRelaxed = 1 // the record was not synced before the next one was written
	maxGroup    = 1 << 30
)

// A journal file grows by zero-filled stretches. A stretch is as long as the file, within these
// limits in bytes. The group that needs a stretch waits until it is on the disk. So the first
// stretch is short, and the journal of a rarely used hub stays small.
const (
	minStretch = 64 << 10
	maxStretch = 256 << 10
)

const maxKept = 4 << 20 // maximum size of a buffer that is kept for the next group, in bytes

func journalPath(path string, i int) string { return fmt.Sprintf("%s.journal-%d", path, i) }

// openJournal opens a hub's journal files and creates missing ones.
func openJournal(path string, id []byte, relaxed bool) (*journal, error) {
	j := &journal{path: path, seed: crc32.Checksum(id, checksums), relaxed: relaxed, check: func() error { return nil }}
	for i := range j.files {
		f, err := disk.Of(path).Open(journalPath(path, i))
		if err != nil {
			return nil, errors.Join(err, j.close())
		}
		j.files[i] = f
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, j.close())
		}
		j.sizes[i] = info.Size()
	}
	if err := disk.Of(path).SyncDir(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// hasJournal reports whether both journal files of a hub exist.
func hasJournal(path string) bool {
	for i := range 2 {
		if _, err := os.Stat(journalPath(path, i)); err != nil {
			return false
		}
	}
	return true
}

func (j *journal) close() error {
	var errs []error
	for _, f := range j.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Close implements [logstore.Log]. It deletes the files if applied is true.
func (j *journal) Close(applied bool) error {
	err := j.close()
	if !applied {
		return err
	}
	return errors.Join(err, os.Remove(journalPath(j.path, 0)), os.Remove(journalPath(j.path, 1)))
}

// Append implements [logstore.Log].
func (j *journal) Append(number uint64, payload logstore.Parts) error {
	size := payload.Size()
	if size >= maxGroup {
		return fmt.Errorf("%w: %d bytes of changes; want less than %d", logstore.ErrTooLarge, size, maxGroup)
	}
	if size > maxKept {
		return j.appendLong(number, payload)
	}
	if err := j.check(); err != nil {
		return err
	}
	j.buf = j.encode(j.buf[:0], number, payload)
	f := j.files[j.current]
	if err := j.grow(f, j.offset+int64(len(j.buf))); err != nil {
		return err
	}
	if _, err := f.WriteAt(j.buf, j.offset); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if !j.relaxed {
		if err := f.Sync(); err != nil {
			return &logstore.UncertainError{Cause: fmt.Errorf("sync journal: %w", err)}
		}
	}
	j.offset += int64(len(j.buf))
	if cap(j.buf) > maxKept {
		j.buf = nil
	}
	return nil
}

// appendLong appends a payload that is too long to be copied to the buffer. It writes the head,
// which contains the checksum, last.
func (j *journal) appendLong(number uint64, payload logstore.Parts) error {
	if err := j.check(); err != nil {
		return err
	}
	head := j.head(nil, number, payload.Size())
	f, end := j.files[j.current], j.offset+recordHead
	if err := j.grow(f, end+int64(payload.Size())+recordAlign); err != nil {
		return err
	}
	sum := j.checksum(head)
	for _, part := range payload {
		sum = crc32.Update(sum, checksums, part)
		if _, err := f.WriteAt(part, end); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		end += int64(len(part))
	}
	binary.BigEndian.PutUint32(head[4:], sum)
	padding := make([]byte, (recordAlign-end%recordAlign)%recordAlign)
	if _, err := f.WriteAt(padding, end); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if _, err := f.WriteAt(head, j.offset); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if !j.relaxed {
		if err := f.Sync(); err != nil {
			return &logstore.UncertainError{Cause: fmt.Errorf("sync journal: %w", err)}
		}
	}
	j.offset = end + int64(len(padding))
	return nil
}

func (j *journal) encode(b []byte, number uint64, payload logstore.Parts) []byte {
	b = j.head(b, number, payload.Size())
	for _, part := range payload {
		b = append(b, part...)
	}
	binary.BigEndian.PutUint32(b[4:], j.checksum(b))
	for len(b)%recordAlign != 0 {
		b = append(b, 0)
	}
	return b
}

// head appends the head of a record to b, with an empty checksum.
func (j *journal) head(b []byte, number uint64, length int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, number)
	flags := byte(0)
	if j.relaxed {
		flags = flagRelaxed
	}
	return append(b, flags)
}

// checksum returns the checksum of the record in b.
func (j *journal) checksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(j.seed, checksums, b[:4]), checksums, b[8:])
}

// grow extends the current file with zeros, so that a later sync need not write the file's size and
// block list. It does nothing in relaxed mode.
func (j *journal) grow(f disk.File, to int64) error {
	if j.relaxed {
		return nil
	}
	return j.lengthen(f, to)
}

// Reserve implements [logstore.Log].
func (j *journal) Reserve(bytes int64) error {
	return j.lengthen(j.files[j.current], j.offset+min(bytes, maxGroup)+recordHead)
}

// lengthen extends the current file with zeros to at least the offset to.
func (j *journal) lengthen(f disk.File, to int64) error {
	size := max(j.sizes[j.current], j.offset)
	if to <= size {
		return nil
	}
	end := size
	for end < to {
		end = (end + min(max(end, minStretch), maxStretch)) / minStretch * minStretch
	}
	zeros := make([]byte, min(end-size, maxStretch))
	for size < end {
		n, err := f.WriteAt(zeros[:min(end-size, maxStretch)], size)
		size += int64(n)
		if err != nil {
			return fmt.Errorf("extend journal: %w", err)
		}
	}
	j.sizes[j.current] = size
	return nil
}

// Size implements [logstore.Log].
func (j *journal) Size() int64 { return j.offset }

// Rotate implements [logstore.Log]. The journal continues in the other file, whose groups are in
// the database.
func (j *journal) Rotate() {
	j.current = 1 - j.current
	j.offset = 0
}

// group is a decoded record of the journal.
type group struct {
	number  uint64
	relaxed bool
	payload []byte
}

// errJournalGap means that groups are missing from the journal.
var errJournalGap = errors.New("groups are missing from the journal")

// recover returns the groups after group after, in order.
//
// The journal ends at the first incomplete record: the process died while writing it. If complete
// synced records follow, the journal was damaged later, and recover fails. A relaxed journal can
// lose any record in a power loss. lost is the highest number of a record that is unusable because
// earlier records are missing, or 0.
func (j *journal) recover(after uint64) (groups []group, lost uint64, err error) {
	var runs [2][]group
	for i, f := range j.files {
		b := make([]byte, j.sizes[i])
		if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read journal: %w", err)
		}
		run, rest := j.run(b)
		later, greatest := j.later(rest, run, after)
		if greatest > 0 && !later.relaxed {
			return nil, 0, fmt.Errorf("%w: a group before group %d is damaged", errJournalGap, later.number)
		}
		lost = max(lost, greatest)
		for len(run) > 0 && run[0].number <= after {
			run = run[1:]
		}
		runs[i] = run
	}
	if len(runs[0]) > 0 && len(runs[1]) > 0 && runs[1][0].number < runs[0][0].number {
		runs[0], runs[1] = runs[1], runs[0]
	}
	for _, run := range runs {
		if len(run) == 0 {
			continue
		}
		last := run[len(run)-1].number
		if want := after + 1; run[0].number != want {
			if !run[0].relaxed {
				return nil, 0, fmt.Errorf("%w: group %d follows group %d", errJournalGap, run[0].number, after)
			}
			lost = max(lost, last)
			continue // no later run follows
		}
		groups = append(groups, run...)
		after = last
	}
	return groups, lost, nil
}

// run returns the consecutive groups at the start of b, and the bytes after them.
func (j *journal) run(b []byte) (run []group, rest []byte) {
	for {
		g, size, ok := j.decode(b)
		if !ok || len(run) > 0 && g.number != run[len(run)-1].number+1 {
			return run, b
		}
		run = append(run, g)
		b = b[size:]
	}
}

// later looks for newer groups in the bytes after a run. It returns the first one and the highest
// number. The number is 0 if it finds no group.
func (j *journal) later(rest []byte, run []group, after uint64) (first group, greatest uint64) {
	if len(run) > 0 {
		after = max(after, run[len(run)-1].number)
	}
	for ; len(rest) >= recordHead; rest = rest[recordAlign:] {
		if n := binary.BigEndian.Uint64(rest[8:]); n <= after || n-after > 1<<40 {
			continue
		}
		g, _, ok := j.decode(rest)
		if !ok {
			continue
		}
		if greatest == 0 {
			first = g
		}
		greatest = max(greatest, g.number)
	}
	return first, greatest
}

// decode returns the record at the start of b and its size. ok is false if b does not start with a
// complete record.
func (j *journal) decode(b []byte) (g group, size int, ok bool) {
	if len(b) < recordHead {
		return group{}, 0, false
	}
	length := int(binary.BigEndian.Uint32(b))
	if length >= maxGroup || recordHead+length > len(b) {
		return group{}, 0, false
	}
	whole := b[:recordHead+length]
	if binary.BigEndian.Uint32(whole[4:]) != j.checksum(whole) {
		return group{}, 0, false
	}
	g = group{number: binary.BigEndian.Uint64(whole[8:]), relaxed: whole[16]&flagRelaxed != 0, payload: whole[recordHead:]}
	return g, min(len(b), (len(whole)+recordAlign-1)/recordAlign*recordAlign), true
}
