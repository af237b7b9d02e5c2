package runs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// written returns a closed base with some layers and merges.
func written(t testing.TB) *stage {
	s := newStage(t, 7)
	for range 6 {
		if err := s.write(40, false); err != nil {
			t.Fatal(err)
		}
		s.settle()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// readDamaged reads the whole base after the content of one file was replaced, and returns an error
// if the data is wrong. Nil content deletes the file.
func (s *stage) readDamaged(name string, content []byte) error {
	s.files = &memoryFiles{files: maps.Clone(s.files.files), calls: map[string]int{}, bytes: map[string]int{}}
	if s.files.files[name] = content; content == nil {
		delete(s.files.files, name)
	}
	s.open()
	defer func() { _ = s.Close() }()
	return s.View(func(r logstore.Reader) error { return s.hasAll(r, s.truth[s.last]) })
}

// Damage lists each damaged block, also several of one file, and continues after a missing file.
func TestBase_ListsDamagedBlocks(t *testing.T) {
	t.Parallel()
	s := written(t)
	s.files = &memoryFiles{files: maps.Clone(s.files.files), calls: map[string]int{}, bytes: map[string]int{}}
	s.open()
	var want []string
	for i, f := range slices.Concat(s.version().runs[0].files, s.version().runs[1].files) {
		if i == 0 {
			delete(s.files.files, f.name)
			continue
		}
		blocks, err := s.tailOf(f)
		if err != nil {
			t.Fatal(err)
		}
		content := bytes.Clone(s.files.files[f.name])
		for n, o := range blocks.blocks {
			if n%3 != 1 { // two of three are damaged
				content[o.offset+o.size/2] ^= 1
				want = append(want, fmt.Sprint(f.name, " ", o.offset))
			}
		}
		s.files.files[f.name] = content
	}
	damaged, err := s.Damage(t.Context())
	var got []string
	for _, d := range damaged {
		got = append(got, fmt.Sprint(d.File, " ", d.Offset))
	}
	if err != nil || len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestBase_ReportsEachDamagedByte(t *testing.T) {
	t.Parallel()
	every := testshare.Amount(1, 5)
	s := written(t)
	for name, content := range s.files.files {
		if !slices.Contains(s.Names(), name) {
			continue // it waits for its deletion
		}
		check := func(what string, offset, latest int, damaged []byte) {
			t.Helper()
			d, ok := errors.AsType[*DamageError]((&stage{TB: t, files: s.files, manifest: s.manifest, truth: s.truth, random: s.random}).readDamaged(name, damaged))
			switch {
			case !ok:
				t.Errorf("%s at %d of %d of %s was not detected", what, offset, len(content), name)
			case d.File != name || d.Offset > int64(latest) || d.Offset < 0 || !strings.Contains(d.Error(), name):
				t.Errorf("%s at %d of %d of %s: %v", what, offset, len(content), name, d)
			}
		}
		for at := 0; at < len(content); at += (1 + at%7) * every {
			damaged := bytes.Clone(content)
			damaged[at] ^= 1 << (at % 8)
			check("a wrong bit", at, at, damaged)
		}
		for at := 0; at < len(content); at += 31 * every {
			check("an end", at, len(content), bytes.Clone(content[:at]))
		}
		for other, content := range s.files.files {
			if other != name && len(content) >= len(s.files.files[name]) {
				check("another file", 0, len(content), content)
			}
		}
	}
}

func TestScan_ContinuesAfterADamagedLargeRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.FileSize = 1 << 30
	l := logstore.NewLayer(testTables, 1)
	l.Set(plain, "a", []byte("small"))
	l.Set(plain, "b", make([]byte, large))
	l.Set(plain, "c", []byte("small"))
	if err := s.Write(l, false); err != nil {
		t.Fatal(err)
	}
	s.files.files[s.Names()[0]][large/2] ^= 1
	scan := func(from []byte) (keys string, err error) {
		err = s.View(func(r logstore.Reader) error {
			return r.Scan(plain, from, func(key []byte, value func() ([]byte, error)) (bool, error) {
				_, err := value()
				if err == nil {
					keys += string(key)
				}
				return false, err
			})
		})
		return keys, err
	}
	keys, err := scan(nil)
	gap, is := errors.AsType[*logstore.RangeError](err)
	if keys != "a" || !is || string(gap.From) != "b" || !errors.As(err, new(*DamageError)) {
		t.Fatalf("got %s, %v; want a, and a range from b", keys, err)
	}
	if keys, err := scan(gap.To); keys != "c" || err != nil {
		t.Errorf("after the range: got %s, %v; want c", keys, err)
	}
}

// The same content has different checksums in another block, file or hub.
func TestBase_DetectsFilesOfAnotherHub(t *testing.T) {
	t.Parallel()
	s := written(t)
	cfg := s.config()
	cfg.Seed = []byte("another hub")
	b, err := Open(t.Context(), cfg, s.manifest)
	if err != nil {
		t.Fatal(err)
	}
	err = b.View(func(r logstore.Reader) error { return s.hasAll(r, s.truth[s.last]) })
	if !errors.As(err, new(*DamageError)) || !errors.Is(err, errChecksum) {
		t.Errorf("got %v", err)
	}
}

func TestBase_DoesNotMergeADamagedFile(t *testing.T) {
	t.Parallel()
	s := newStage(t, 7)
	defer func() { _ = s.Close() }()
	merges := s.cfg.Cache.short
	if err := merges.Acquire(t.Context(), shortMerges); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if err := s.write(60, false); err != nil {
			t.Fatal(err)
		}
	}
	was := s.Names()
	damaged := was[len(was)-1] // the oldest runs are merged first
	s.files.files[damaged][10] ^= 1
	merges.Release(shortMerges)
	s.settle()
	if !slices.Contains(s.Names(), damaged) {
		t.Error("a damaged file was merged")
	}
	reads := s.files.bytes["read"]
	for range 30 { // newer runs are merged without reading the damaged file again
		if err := s.write(10, false); err != nil {
			t.Fatal(err)
		}
		s.settle()
	}
	if n := len(s.version().runs); n > 16 || s.files.bytes["read"]-reads > 100_000 {
		t.Errorf("%d runs, %d bytes read; want at most 16 runs and 100,000 bytes", n, s.files.bytes["read"]-reads)
	}
	s.files.files[damaged][10] ^= 1
	s.compare()
}

func FuzzDamagedFile(f *testing.F) {
	s := written(f)
	names := slices.Sorted(slices.Values(s.Names()))
	f.Add(uint8(0), uint32(3), []byte{1, 2, 3})
	f.Add(uint8(1), uint32(900), []byte{})
	f.Fuzz(func(t *testing.T, which uint8, at uint32, patch []byte) {
		s := &stage{TB: t, files: s.files, manifest: s.manifest, truth: s.truth, random: s.random}
		name := names[int(which)%len(names)]
		content := bytes.Clone(s.files.files[name])
		begin := int(at) % len(content)
		if len(patch) == 0 {
			content = content[:begin]
		} else {
			copy(content[begin:], patch)
		}
		same := bytes.Equal(content, s.files.files[name])
		err := s.readDamaged(name, content)
		if _, damaged := errors.AsType[*DamageError](err); same != (err == nil) || !same && !damaged {
			t.Errorf("file changed: %v; got error %v", !same, err)
		}
	})
}

// Malformed content whose checksums are right must not crash the process.
func FuzzContent(f *testing.F) {
	good := &fileWriter{b: &Base{cfg: Config{Tables: testTables, BlockSize: 1000, FileSize: 1000}}}
	for _, key := range []string{"\x00a", "\x00b", "\x01\x00\x00\x00\x00\x00\x00\x00\x01x"} {
		if err := good.add([]byte(key), []byte("value")); err != nil {
			f.Fatal(err)
		}
	}
	good.endBlock()
	good.tail.filter = makeFilter(good.hashes)
	c := &logstore.Coder{}
	good.tail.code(c)
	f.Add(good.content, c.Buf)
	f.Add([]byte{}, []byte{1, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, blocks, tail []byte) {
		files := newFiles()
		files.files["x"] = append(bytes.Clone(blocks), tail...)
		cfg := Config{Tables: testTables, Files: files, BlockSize: 100, FileSize: 1000}
		v := &version{runs: []*run{{files: []*file{{
			name: "x", size: uint64(len(blocks) + len(tail)), tail: uint64(len(tail)), first: []byte{0}, last: []byte{2, 0xff},
		}}}}}
		b, err := Open(t.Context(), cfg, v.encode())
		if err != nil {
			t.Fatal(err)
		}
		v.runs[0].files[0].sum = b.checksum("x", tail)
		if decoded, err := decodeTail(tail, uint64(len(blocks))); err == nil {
			for _, o := range decoded.blocks { // as if all checksums were right
				b.cfg.Cache.blocks.put(place{"x", o.offset}, blocks[o.offset:o.offset+o.size], int(o.size))
			}
		}
		if err := b.Rebase(v.encode()); err != nil {
			t.Fatal(err)
		}
		_ = b.View(func(r logstore.Reader) error {
			for table := range testTables {
				_, _ = r.Get(logstore.Table(table), []byte("a"))
				n := 0
				_ = r.Scan(logstore.Table(table), nil, func([]byte, func() ([]byte, error)) (bool, error) {
					n++
					return n > 1000, nil
				})
			}
			_, _ = r.Last(grouped, 1)
			return r.Group(grouped, 1, func([]byte, func() ([]byte, error)) error { return nil })
		})
	})
}

func FuzzManifest(f *testing.F) {
	s := written(f)
	f.Add(s.manifest)
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{2, 0, 0})
	f.Fuzz(func(t *testing.T, manifest []byte) {
		v, err := decodeManifest(manifest)
		if err != nil {
			if !errors.As(err, new(*ManifestError)) {
				t.Errorf("got %T", err)
			}
			return
		}
		again, err := decodeManifest(v.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, again, cmp.AllowUnexported(version{}, run{}, file{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOpen_RefusesInvalidManifests(t *testing.T) {
	t.Parallel()
	good := func() *version {
		return &version{last: 5, runs: []*run{{files: []*file{
			{name: "x", size: 9, tail: 3, first: []byte("a"), last: []byte("b")}, {name: "y", size: 9, tail: 3, first: []byte("c"), last: []byte("c")},
		}}}}
	}
	tests := map[string]struct {
		change func(*version)
		want   string
	}{
		"a whole one":                 {func(*version) {}, ""},
		"a run without files":         {func(v *version) { v.runs[0].files = nil }, "a run has no files"},
		"a tail larger than its file": {func(v *version) { v.runs[0].files[1].tail = 10 }, "file y has 9 bytes and a tail of 10"},
		"a file without keys":         {func(v *version) { v.runs[0].files[0].first = nil }, "keys of file x are out of order"},
		"files that overlap":          {func(v *version) { v.runs[0].files[1].first = []byte("b") }, "keys of file y are out of order"},
		"a file that is too large":    {func(v *version) { v.runs[0].files[0].size = 1 << 50 }, "file x has"},
	}
	for name, test := range tests {
		v := good()
		test.change(v)
		_, err := Open(t.Context(), Config{}, v.encode())
		if test.want == "" && err != nil || test.want != "" && (!errors.As(err, new(*ManifestError)) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
	manifest := good().encode()
	for n := 1; n < len(manifest); n++ {
		if _, err := Open(t.Context(), Config{}, manifest[:n]); err == nil {
			t.Errorf("a manifest truncated after %d of %d bytes was accepted", n, len(manifest))
		}
	}
	manifest[0] = 2
	if _, err := Open(t.Context(), Config{}, manifest); err == nil || !strings.Contains(err.Error(), "format version is 2; want 1") {
		t.Errorf("Open with a newer manifest: %v", err)
	}
}

// Checksums must not change between versions of the code.
func TestChecksum_IsCRC32COfSeedNameAndContent(t *testing.T) {
	t.Parallel()
	b, err := Open(t.Context(), Config{Seed: []byte("12")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.checksum("345", []byte("6789")), crc32.Checksum([]byte("123456789"), castagnoli); got != want || want != 0xe3069283 {
		t.Errorf("got %x, want %x", got, want)
	}
}

// scanPast scans all tables and continues after unreadable ranges. It returns the number of records
// in those ranges, and an error if any other record is missing or wrong.
func (s *stage) scanPast(r logstore.Reader, want contents) (lost int, err error) {
	for id := range testTables {
		left := maps.Clone(want[id])
		for from := []byte(nil); ; {
			err := r.Scan(logstore.Table(id), from, func(key []byte, value func() ([]byte, error)) (bool, error) {
				v, err := value()
				if w, is := left[string(key)]; err == nil && (!is || w != string(v)) {
					err = fmt.Errorf("table %d has %q = %q; want %q, once: %v", id, key, v, w, is)
				}
				delete(left, string(key))
				return false, err
			})
			gap, is := errors.AsType[*logstore.RangeError](err)
			if !is && err != nil {
				return lost, err
			}
			if !is {
				break
			}
			if gap.To != nil && bytes.Compare(gap.To, gap.From) <= 0 || bytes.Compare(gap.From, from) < 0 {
				return lost, fmt.Errorf("table %d: the range %w does not continue from %q", id, gap, from)
			}
			before := len(left)
			maps.DeleteFunc(left, func(key, _ string) bool {
				return key >= string(gap.From) && (gap.To == nil || key < string(gap.To))
			})
			lost += before - len(left)
			if gap.To == nil {
				break
			}
			from = gap.To
		}
		if len(left) > 0 {
			return lost, fmt.Errorf("table %d lacks %d records outside of the ranges: %q", id, len(left), slices.Sorted(maps.Keys(left)))
		}
	}
	return lost, s.groupsPast(r, want[grouped])
}

// groupsPast reads each group of the grouped table. It returns an error if a group is wrong, or if its error
// names no unreadable range.
func (s *stage) groupsPast(r logstore.Reader, want map[string]string) error {
	groups := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		groups[key[:8]] = append(groups[key[:8]], key)
	}
	for number, keys := range groups {
		group := binary.BigEndian.Uint64([]byte(number))
		var got []string
		err := r.Group(grouped, group, func(key []byte, value func() ([]byte, error)) error {
			got = append(got, string(key))
			_, err := value()
			return err
		})
		if _, is := errors.AsType[*logstore.RangeError](err); !is && (err != nil || !slices.Equal(got, keys)) {
			return fmt.Errorf("group %d has %q, %w; want %q, or an unreadable range", group, got, err, keys)
		}
		last, err := r.Last(grouped, group)
		if _, is := errors.AsType[*logstore.RangeError](err); !is && (err != nil || string(last) != lastOf(keys)) {
			return fmt.Errorf("the last key of group %d is %q, %w; want %q, or an unreadable range", group, last, err, lastOf(keys))
		}
	}
	return nil
}

// A damaged byte costs at most the records of one block, or the records of one file if the tail is
// damaged.
func TestBase_ScansPastDamage(t *testing.T) {
	t.Parallel()
	every := testshare.Amount(1, 5)
	s := written(t)
	all := 0
	for _, table := range s.truth[s.last] {
		all += len(table)
	}
	blocks, tails := 0, 0 // damaged ones that cost some but not all records
	for name, content := range s.files.files {
		if !slices.Contains(s.Names(), name) {
			continue // it waits for its deletion
		}
		for at := 0; at < len(content); at += (17 + at%7) * every {
			damaged := bytes.Clone(content)
			damaged[at] ^= 1 << (at % 8)
			other := &stage{TB: t, manifest: s.manifest, truth: s.truth, random: s.random}
			other.files = &memoryFiles{files: maps.Clone(s.files.files), calls: map[string]int{}, bytes: map[string]int{}}
			other.files.files[name] = damaged
			other.open()
			var lost int
			err := other.View(func(r logstore.Reader) (err error) {
				lost, err = other.scanPast(r, s.truth[s.last])
				return err
			})
			_ = other.Close() // it was only read
			switch {
			case err != nil:
				t.Fatalf("a changed bit at %d of %d of %s: %v", at, len(content), name, err)
			case lost > 0 && lost < all/2 && at < len(content)/2:
				blocks++
			case lost > 0 && lost < all:
				tails++
			}
		}
	}
	if blocks == 0 || tails == 0 {
		t.Errorf("%d damaged blocks and %d damaged tails lost some of %d records; want some of both", blocks, tails, all)
	}
}

// The owner of a base reads past a missing file as past a damaged one. For other readers, only their
// manifest may be too old.
func TestBase_ReportsAMissingFileAsDamageToItsOwner(t *testing.T) {
	t.Parallel()
	s := written(t)
	for _, name := range s.Names() {
		other := &stage{TB: t, manifest: s.manifest, truth: s.truth, random: s.random}
		other.files = &memoryFiles{files: maps.Clone(s.files.files), calls: map[string]int{}, bytes: map[string]int{}}
		delete(other.files.files, name)
		other.open()
		err := other.View(func(r logstore.Reader) error {
			lost, err := other.scanPast(r, s.truth[s.last])
			if err == nil && lost == 0 {
				err = errors.New("no record was in an unreadable range")
			}
			return err
		})
		if err != nil {
			t.Errorf("the owner, without %s: %v", name, err)
		}
		err = other.View(func(r logstore.Reader) error { return s.hasAll(r, s.truth[s.last]) })
		if !errors.As(err, new(*logstore.RangeError)) || !errors.As(err, new(*DamageError)) || !errors.Is(err, ErrGone) {
			t.Errorf("the owner, without %s: %v; want a RangeError of a DamageError that wraps ErrGone", name, err)
		}
		_ = other.Close() // it was only read
		cfg := other.config()
		cfg.Commit = nil
		reader, err := Open(t.Context(), cfg, s.manifest)
		if err != nil {
			t.Fatal(err)
		}
		err = reader.View(func(r logstore.Reader) error { return s.hasAll(r, s.truth[s.last]) })
		if !errors.Is(err, ErrGone) || errors.As(err, new(*DamageError)) {
			t.Errorf("another reader, without %s: %v; want ErrGone without damage", name, err)
		}
		_ = reader.Close() // it was only read
	}
}
