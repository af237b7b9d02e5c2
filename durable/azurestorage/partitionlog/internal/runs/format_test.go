package runs

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

var rewriteFormat = flag.Bool("format.rewrite", false, "write the files of the current format in testdata, after a change that older builds need not read")

// sampleLayers returns layers that use all features of the format, and the resulting contents.
func sampleLayers() (layers []*logstore.Layer, want contents) {
	want = contents{{}, {}, {}}
	for n := range uint64(6) {
		l := logstore.NewLayer(testTables, n+1)
		set := func(table logstore.Table, key, value string) {
			l.Set(table, key, []byte(value))
			want[table][key] = value
		}
		for i := range 10 {
			set(plain, fmt.Sprintf("key %d", 7*i+int(n)), fmt.Sprintf("value %d", n))
			set(grouped, string(logstore.NumberKey(uint64(i)))+fmt.Sprint(n), strings.Repeat("x", i*int(n)))
		}
		set(plain, "long", strings.Repeat("long", 500))
		set(plain, "empty", "")
		if n > 3 {
			l.Set(plain, "key 3", nil)
			delete(want[plain], "key 3")
		}
		layers = append(layers, l)
	}
	return layers, want
}

// The code reads the files of every format version. The files of a format were written once, by the
// version that introduced it, and must not change.
func TestOpen_ReadsFilesOfEveryFormatVersion(t *testing.T) {
	t.Parallel()
	layers, want := sampleLayers()
	for format := 1; format <= FormatVersion; format++ {
		dir := filepath.Join("testdata", fmt.Sprintf("format%d", format))
		s := newStage(t, 1)
		if *rewriteFormat && format == FormatVersion {
			for _, l := range layers {
				if err := s.Write(l, false); err != nil {
					t.Fatal(err)
				}
				s.settle()
			}
			must(t, os.RemoveAll(dir))
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "manifest"), s.manifest, 0o644))
			for _, name := range s.Names() {
				must(t, os.WriteFile(filepath.Join(dir, name), s.files.files[name], 0o644))
			}
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		s.files = newFiles()
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			must(t, err)
			s.files.files[e.Name()] = content
		}
		s.manifest = s.files.files["manifest"]
		s.open()
		if len(s.Names()) != len(entries)-1 || len(s.version().runs) < 2 {
			t.Errorf("format %d: %d files in %d runs, of %d", format, len(s.Names()), len(s.version().runs), len(entries)-1)
		}
		must(t, s.View(func(r logstore.Reader) error { return s.differs(r, want) }))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFile_HasTheDocumentedLayout(t *testing.T) {
	t.Parallel()
	files := newFiles()
	b, err := Open(t.Context(), Config{Tables: testTables, Files: files, Seed: []byte("hub"), BlockSize: 20}, nil)
	must(t, err)
	w := &fileWriter{ctx: t.Context(), b: b, name: "x"}
	group := "\x01\x00\x00\x00\x00\x00\x00\x00\x07"
	must(t, w.add([]byte("\x00a"), []byte("value")))
	must(t, w.add([]byte("\x00b"), nil))
	must(t, w.add([]byte("\x00c"), []byte{}))
	must(t, w.add([]byte(group+"e"), []byte(strings.Repeat("v", 200))))
	must(t, w.add([]byte(group+"f"), []byte("last")))
	must(t, w.endFile())

	blocks := []string{
		"\x02\x00a\x06value" + "\x02\x00b\x00" + "\x02\x00c\x01",
		"\x0a" + group + "e\xc9\x01" + strings.Repeat("v", 200),
		"\x0a" + group + "f\x05last",
	}
	tail := []byte{FormatVersion, 3}
	for i, first := range []string{"\x00a", group + "e", group + "f"} {
		tail = append(binary.AppendUvarint(tail, uint64(len(first))), first...)
		tail = binary.AppendUvarint(tail, uint64(len(blocks[i])))
		tail = binary.AppendUvarint(tail, uint64(crc32.Checksum([]byte("hubx"+blocks[i]), castagnoli)))
	}
	tail = append(tail, 6*filterBits/8) // for 5 keys and a group
	got := files.files["x"]
	want := append([]byte(strings.Join(blocks, "")), tail...)
	if !bytes.HasPrefix(got, want) || len(got) != len(want)+6*filterBits/8 {
		t.Errorf("got  %q\nwant %q and the filter", got, want)
	}
	f := w.files[0]
	if int(f.size) != len(got) || int(f.tail) != len(got)-len(strings.Join(blocks, "")) ||
		f.records != 5 || f.deletions != 1 || string(f.first) != "\x00a" || string(f.last) != group+"f" {
		t.Errorf("got %+v", f)
	}
}

func TestFilter_ContainsItsKeysAndFewOthers(t *testing.T) {
	t.Parallel()
	hash := func(n uint64) uint64 { return xxhash.Sum64(binary.BigEndian.AppendUint64(nil, n)) }
	var hashes []uint64
	for n := range uint64(10_000) {
		hashes = append(hashes, hash(n))
	}
	filter := &tail{filter: makeFilter(hashes)}
	wrong := 0
	for n := range uint64(110_000) {
		has := filter.mayHave(hash(n))
		if n < 10_000 && !has {
			t.Fatalf("the filter lacks hash %d", n)
		}
		if n >= 10_000 && has {
			wrong++
		}
	}
	if wrong > 200 {
		t.Errorf("%d of 100,000 other hashes match the filter", wrong)
	}
	if !(&tail{}).mayHave(1) {
		t.Error("an empty filter must match everything")
	}
}
