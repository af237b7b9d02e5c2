package runs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// fill writes a layer of records and waits for merges.
func (s *stage) fill(records, size int) {
	s.Helper()
	s.last++
	l := logstore.NewLayer(testTables, s.last)
	for n := range records {
		key := binary.BigEndian.AppendUint64(nil, uint64(n)*0x9e3779b97f4a7c15) // spread over the key space
		l.Set(plain, string(binary.BigEndian.AppendUint64(key, s.last)), make([]byte, size))
	}
	if err := s.Write(l, false); err != nil {
		s.Fatal(err)
	}
	s.settle()
}

// The cost of a flush does not grow with the size of the base. A record is rewritten only when its
// run at least doubles.
func TestBase_RewritesARecordALogarithmicNumberOfTimes(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.BlockSize, s.cfg.FileSize = 1000, 20_000
	const flushes = 500
	most := 0
	for n := 1; n <= flushes; n++ {
		s.fill(20, 100)
		if again, bound := s.files.bytes["create"]/(n*20*100), 2+bits.Len(uint(n)); again > bound {
			t.Fatalf("after %d flushes each byte was written %d times; want at most %d", n, again, bound)
		}
		most = max(most, len(s.version().runs))
	}
	if bound := 2 + bits.Len(flushes); most > bound {
		t.Errorf("%d runs at a time; want at most %d", most, bound)
	}
	t.Logf("%d flushes: each byte was written %.1f times; at most %d runs", flushes, float64(s.files.bytes["create"])/(flushes*20*100), most)
}

func TestToMerge_ReturnsTheLargestWorthwhileCount(t *testing.T) {
	t.Parallel()
	sizes := func(sizes ...uint64) (runs []weight) {
		for _, size := range sizes {
			runs = append(runs, weight{size: size, records: size})
		}
		return runs
	}
	deleting := func(runs []weight, deletions uint64) []weight {
		runs[0].deletions = deletions
		return runs
	}
	tests := map[string]struct {
		runs   []weight
		oldest bool
		want   int
	}{
		"none":       {nil, true, 0},
		"too few":    {sizes(1, 1, 1), true, 0},
		"equal ones": {sizes(1, 1, 1, 1), true, 4},
		"older ones as large as the newer ones together": {sizes(1, 1, 1, 1, 4, 8), true, 6},
		"an older one that is larger":                    {sizes(1, 1, 1, 1, 5), true, 4},
		"small ones older than a larger one":             {sizes(5, 1, 1, 1), true, 0},
		"a large one and older ones as large together":   {sizes(5, 1, 1, 1, 2), true, 5},
		"few, with few deletions":                        {deleting(sizes(5, 100), 4), true, 0},
		"few, with as many deletions":                    {deleting(sizes(60, 100), 50), true, 2},
		"few, with as many deletions, older ones below":  {deleting(sizes(60, 100), 50), false, 0},
		"one, with deletions":                            {deleting(sizes(60), 60), true, 0},
	}
	for name, test := range tests {
		if got := toMerge(test.runs, test.oldest); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

// Few runs remain, whatever the sizes of the layers are.
func TestToMerge_LeavesFewRuns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range testshare.Amount(200, 20) {
		var runs []weight
		spread := 1 + random.IntN(20)
		for range 1000 {
			size := uint64(1) + random.Uint64N(1<<random.IntN(spread))
			runs = append([]weight{{size: size, records: size}}, runs...)
			if n := toMerge(runs, true); n > 0 {
				var sum weight
				for _, r := range runs[:n] {
					sum.size += r.size
				}
				runs = append([]weight{sum}, runs[n:]...)
			}
			if len(runs) > 40 {
				t.Fatalf("round %d: %d runs: %v", round, len(runs), runs)
			}
		}
	}
}

func TestBase_DropsDeletedRecords(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	for n := range 10 {
		s.last++
		l := logstore.NewLayer(testTables, s.last)
		for key := range 100 {
			l.Set(plain, fmt.Sprintf("%d %d", n, key), []byte("value"))
			if n > 0 {
				l.Set(plain, fmt.Sprintf("%d %d", n-1, key), nil)
			}
		}
		if err := s.Write(l, false); err != nil {
			t.Fatal(err)
		}
		s.settle()
	}
	records := uint64(0)
	for _, r := range s.version().runs {
		n, _ := r.counts()
		records += n
	}
	if records > 500 {
		t.Errorf("the base has %d records for 100 live ones; want at most 500", records)
	}
}

func TestGet_OfAMissingKeyMakesNoRequest(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.Cache = NewCache(1<<20, 1<<20)
	s.cfg.BlockSize, s.cfg.FileSize = 1000, 20_000
	for range 50 {
		s.fill(20, 100)
	}
	files := len(s.Names())
	before := s.files.count("read")
	const gets = 10_000
	err := s.View(func(r logstore.Reader) error {
		for n := range gets {
			key := binary.BigEndian.AppendUint64(nil, uint64(n)*0x9e3779b97f4a7c15)
			if value, err := r.Get(plain, append(key, "unknown!"...)); value != nil || err != nil {
				return fmt.Errorf("got %q, %w", value, err)
			}
			if _, err := r.Last(grouped, uint64(n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if reads := s.files.count("read") - before; reads > files+gets/100 {
		t.Errorf("%d requests for %d missing records in %d files", reads, gets, files)
	}
}

// Only files with a large record make Go collect garbage early and return memory afterwards.
func TestBase_CollectsEarlyAfterALargeRecord(t *testing.T) {
	setting := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	patience.Until(t, "the early collection of earlier tests ends", func() bool { return setting() >= 100 })
	synctest.Test(t, func(t *testing.T) { // a timer ends early collection
		s := newStage(t, 1)
		defer func() { _ = s.Close() }()
		s.cfg.FileSize = 1 << 30
		before := setting()
		s.fill(2*reclaim.Large>>10, 1<<10)
		if now := setting(); now != before {
			t.Errorf("after small records, the garbage collector's setting is %d, want %d", now, before)
		}
		s.fill(1, reclaim.Large)
		if now := setting(); now >= before {
			t.Errorf("after a large record, the garbage collector's setting is %d, want less than %d", now, before)
		}
		time.Sleep(time.Minute)
		if now := setting(); now != before {
			t.Errorf("a minute later, the garbage collector's setting is %d, want %d", now, before)
		}
	})
}

const large = 1 << 20 // size of a large record

func TestLast_DoesNotReadALargeRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.Cache, s.cfg.BlockSize, s.cfg.FileSize = NewCache(0, 1<<20), 1000, 1<<30
	key := func(group uint64, n int) string { return string(logstore.NumberKey(group)) + strconv.Itoa(n) }
	l := logstore.NewLayer(testTables, 1)
	l.Set(grouped, key(1, 0), []byte("small"))
	l.Set(grouped, key(1, 1), make([]byte, large))
	l.Set(grouped, key(2, 0), make([]byte, large))
	l.Set(grouped, key(2, 1), []byte("small"))
	l.Set(grouped, key(2, 2), []byte("small"))
	deleted := logstore.NewLayer(testTables, 2)
	deleted.Set(grouped, key(2, 2), nil)
	deleted.Set(grouped, key(2, 1), nil)
	for _, l := range []*logstore.Layer{l, deleted} {
		if err := s.Write(l, false); err != nil {
			t.Fatal(err)
		}
	}
	before := s.files.bytes["read"]
	for group, want := range map[uint64]string{1: key(1, 1), 2: key(2, 0), 3: ""} {
		err := s.View(func(r logstore.Reader) error {
			got, err := r.Last(grouped, group)
			if string(got) != want {
				t.Errorf("the last key of group %d is %q, want %q", group, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read := s.files.bytes["read"] - before; read >= large {
		t.Errorf("read %d bytes to find the last keys, want fewer than %d", read, large)
	}
}

func TestMerge_DoesNotReadADeletedLargeRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.FileSize = 1 << 30
	l := logstore.NewLayer(testTables, 1)
	l.Set(plain, "a", []byte("small"))
	l.Set(plain, "b", make([]byte, large))
	l.Set(plain, "c", make([]byte, 2*large))
	deleted := logstore.NewLayer(testTables, 2)
	deleted.Set(plain, "b", nil)
	for _, l := range []*logstore.Layer{l, deleted} {
		if err := s.Write(l, false); err != nil {
			t.Fatal(err)
		}
	}
	before := s.files.bytes["read"]
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read := s.files.bytes["read"] - before; read < 2*large || read >= 3*large {
		t.Errorf("the merge read %d bytes; want the undeleted large record, of %d bytes", read, 2*large)
	}
	err := s.View(func(r logstore.Reader) error {
		for key, want := range map[string]int{"a": len("small"), "b": 0, "c": 2 * large} {
			if value, err := r.Get(plain, []byte(key)); len(value) != want || err != nil {
				return fmt.Errorf("record %s has %d bytes, %w; want %d", key, len(value), err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGroup_ReadsOnlyFilesThatContainIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.Cache = NewCache(0, 1<<20) // caches no blocks
	if err := s.cfg.Cache.short.Acquire(t.Context(), shortMerges); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(20) {
		l := logstore.NewLayer(testTables, n+1)
		for _, group := range []uint64{1, 100 + n, 1000} {
			l.Set(grouped, string(logstore.NumberKey(group))+fmt.Sprint(n), []byte("value"))
		}
		if err := s.Write(l, false); err != nil {
			t.Fatal(err)
		}
	}
	read := func(group uint64) (records, calls int) {
		before := s.files.count("read")
		err := s.View(func(r logstore.Reader) error {
			return r.Group(grouped, group, func([]byte, func() ([]byte, error)) error { records++; return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		return records, s.files.count("read") - before
	}
	read(1) // also reads the tails
	for n := range uint64(20) {
		if records, calls := read(100 + n); records != 1 || calls != 1 {
			t.Errorf("group in one file: %d records, %d requests", records, calls)
		}
	}
	if records, calls := read(1); records != 20 || calls != 20 {
		t.Errorf("group in all files: %d records, %d requests", records, calls)
	}
	if records, calls := read(500); records != 0 || calls != 0 {
		t.Errorf("group in no file: %d records, %d requests", records, calls)
	}
}

// A long scan reads many blocks per request and does not evict cached blocks.
func TestScan_ReadsAhead(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.Cache = NewCache(1<<20, 1<<20)
	s.cfg.BlockSize, s.cfg.FileSize = 1000, 1<<30
	s.fill(20_000, 100)
	before := s.files.count("read")
	n := 0
	err := s.View(func(r logstore.Reader) error {
		return r.Scan(plain, nil, func([]byte, func() ([]byte, error)) (bool, error) { n++; return false, nil })
	})
	if err != nil || n != 20_000 {
		t.Fatalf("%d records, %v", n, err)
	}
	if reads := s.files.count("read") - before; reads > 20 {
		t.Errorf("the scan made %d requests for %d bytes; want at most 20", reads, s.files.bytes["create"])
	}
	if blocks := s.cfg.Cache.blocks.order.Len(); blocks > 2 {
		t.Errorf("the scan put %d blocks into the cache", blocks)
	}
}

func TestCache_IsBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.BlockSize, s.cfg.FileSize = 1000, 5000
	for range 10 {
		s.fill(1000, 100)
	}
	err := s.View(func(r logstore.Reader) error {
		for n := range 1000 {
			key := binary.BigEndian.AppendUint64(nil, uint64(n)*0x9e3779b97f4a7c15)
			if value, err := r.Get(plain, binary.BigEndian.AppendUint64(key, 5)); len(value) != 100 || err != nil {
				return fmt.Errorf("got %q, %w", value, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := &s.cfg.Cache.blocks
	blocks.put(place{"large", 0}, make([]byte, blocks.most/3), blocks.most/3)
	if blocks.get(place{"large", 0}) != nil {
		t.Error("the cache stored a value larger than a quarter of its limit")
	}
	for name, c := range map[string]*lru{"blocks": blocks, "tails": &s.cfg.Cache.tails} {
		bytes := 0
		for e := c.order.Front(); e != nil; e = e.Next() {
			switch v := e.Value.(*cached).value.(type) {
			case []byte:
				bytes += cap(v)
			case *tail:
				bytes += v.size
			}
		}
		if n := len(c.items); n < 3 || n != c.order.Len() || c.used > c.most || bytes+n*cachedMemory > c.used {
			t.Errorf("%s: %d items of %d bytes, counted as %d of %d bytes", name, n, bytes, c.used, c.most)
		}
	}
}

func TestBase_StoresLargeRecords(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	defer func() { _ = s.Close() }()
	s.cfg.BlockSize, s.cfg.FileSize = 32<<10, 1<<20
	large := make([]byte, testshare.Amount(100, 10)<<20)
	for at := range large {
		large[at] = byte(at * at >> 8)
	}
	want := map[string]string{"a": "small", "b": string(large), "c": ""}
	for n := range uint64(5) {
		l := logstore.NewLayer(testTables, n+1)
		l.Set(plain, "d", []byte(fmt.Sprint(n)))
		if n == 0 {
			for key, value := range want {
				l.Set(plain, key, []byte(value))
			}
		}
		if err := s.Write(l, false); err != nil {
			t.Fatal(err)
		}
	}
	s.settle()
	want["d"] = "4"
	if err := s.View(func(r logstore.Reader) error { return s.hasAll(r, contents{want, {}, {}}) }); err != nil {
		t.Fatal(strings.ReplaceAll(err.Error(), string(large), "…"))
	}
	if used := s.cfg.Cache.blocks.used; used > 10_000 {
		t.Errorf("the block cache holds %d bytes; want at most 10,000", used)
	}
}

// hugeFiles count requests. They store nothing, and reads fail.
type hugeFiles struct{ requests int }

func (f *hugeFiles) Create(context.Context, string, []byte) error { f.requests++; return nil }
func (f *hugeFiles) Remove(context.Context, string) error         { f.requests++; return nil }
func (f *hugeFiles) ReadAt(context.Context, string, int64, []byte) error {
	f.requests++
	return errors.New("unexpected read")
}

// hugeManifest returns the manifest of a base of the given size in bytes.
func hugeManifest(size uint64) []byte {
	v := &version{last: 1}
	for left := size; left > 0; {
		r := &run{}
		n := max(left/2, min(left, 32<<20)) // each run has half of the remaining size
		for left -= n; n > 0; {
			f := &file{
				name: "base-0000000001-abcdefghijklmnopqrstuvwxyz", size: min(n, 32<<20), tail: 200 << 10, sum: 12345678,
				first: binary.BigEndian.AppendUint64([]byte{1}, 2*n), last: binary.BigEndian.AppendUint64([]byte{1}, 2*n+1), records: 100_000,
			}
			n -= f.size
			r.files = append([]*file{f}, r.files...)
		}
		v.runs = append([]*run{r}, v.runs...)
	}
	return v.encode()
}

// Open decodes the manifest and reads no file.
func TestOpen_MakesNoRequest(t *testing.T) {
	t.Parallel()
	files := &hugeFiles{}
	b, err := Open(t.Context(), Config{Tables: testTables, Files: files}, hugeManifest(5<<30))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.Names()); n < 160 || files.requests != 0 {
		t.Errorf("%d files, %d requests", n, files.requests)
	}
	_ = b.Close()
}

func BenchmarkOpen(b *testing.B) {
	for _, size := range []uint64{50 << 20, 5 << 30, 500 << 30} {
		b.Run(fmt.Sprintf("%d MB", size>>20), func(b *testing.B) {
			manifest := hugeManifest(size)
			for b.Loop() {
				base, err := Open(b.Context(), Config{Tables: testTables, Files: &hugeFiles{}}, manifest)
				if err != nil {
					b.Fatal(err)
				}
				_ = base.Close()
			}
			b.ReportMetric(float64(len(manifest)), "manifest-bytes")
		})
	}
}

// benchmarked returns a base of the given number of 8 MiB layers, with default sizes.
func benchmarked(b *testing.B, layers int) *stage {
	s := newStage(b, 1)
	cfg := s.config()
	cfg.BlockSize, cfg.FileSize, cfg.Cache = 0, 0, nil
	var err error
	if s.Base, err = Open(b.Context(), cfg, nil); err != nil {
		b.Fatal(err)
	}
	for range layers {
		if err := s.Write(s.benchmarkLayer(), false); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// benchmarkLayer returns a layer of 8 MiB with instances and their histories.
func (s *stage) benchmarkLayer() *logstore.Layer {
	s.last++
	l := logstore.NewLayer(testTables, s.last)
	for n := range 8 << 10 {
		number := s.last<<32 | uint64(n)
		l.Set(plain, benchmarkKey(number), make([]byte, 200))
		for event := range byte(4) {
			l.Set(grouped, string(append(logstore.NumberKey(number), event)), make([]byte, 180))
		}
	}
	return l
}

func benchmarkKey(number uint64) string { return fmt.Sprintf("%016x", number*0x9e3779b97f4a7c15) }

func BenchmarkWrite(b *testing.B) {
	s := benchmarked(b, 0)
	s.stop() // no merges
	l := s.benchmarkLayer()
	b.SetBytes(8 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Write(l, false); err != nil {
			b.Fatal(err)
		}
		clear(s.files.files)
	}
}

func BenchmarkMerge(b *testing.B) {
	s := benchmarked(b, 0)
	s.stop()
	for range 4 {
		if err := s.Write(s.benchmarkLayer(), false); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(4 * 8 << 20)
	b.ReportAllocs()
	for b.Loop() {
		w := s.newWriter(b.Context(), s.last, 4*8<<20)
		if err := w.merge(s.version().runs, true); err != nil {
			b.Fatal(err)
		}
		for _, name := range w.tried {
			delete(s.files.files, name)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s := benchmarked(b, 10)
	s.settle()
	b.Logf("%d runs", len(s.version().runs))
	number := func(n int) uint64 { return 5<<32 | uint64(n%500) }
	read := func(name string, f func(r logstore.Reader, n int) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			err := s.View(func(r logstore.Reader) error {
				for n := 0; b.Loop(); n++ {
					if err := f(r, n); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	get := func(r logstore.Reader, key string, want int) error {
		value, err := r.Get(plain, []byte(key))
		if err == nil && len(value) != want {
			err = fmt.Errorf("got %d bytes, want %d", len(value), want)
		}
		return err
	}
	read("hit", func(r logstore.Reader, n int) error { return get(r, benchmarkKey(number(n)), 200) })
	read("miss", func(r logstore.Reader, n int) error { return get(r, benchmarkKey(number(n))+"x", 0) })
	read("group", func(r logstore.Reader, n int) error {
		return r.Group(grouped, number(n), func([]byte, func() ([]byte, error)) error { return nil })
	})
	read("last", func(r logstore.Reader, n int) error {
		last, err := r.Last(grouped, number(n))
		if err == nil && len(last) != 9 {
			err = fmt.Errorf("got %q", last)
		}
		return err
	})
	read("scan of 100", func(r logstore.Reader, n int) error {
		left := 100
		return r.Scan(plain, []byte(benchmarkKey(number(n))), func([]byte, func() ([]byte, error)) (bool, error) {
			left--
			return left == 0, nil
		})
	})
}
