package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/google/go-cmp/cmp"
)

const (
	plain logstore.Table = iota
	grouped
	other
)

var testTables = logstore.Tables{
	plain:   {Name: "plain"},
	grouped: {Name: "grouped", Grouped: true},
	other:   {Name: "other", Grouped: true},
}

// memoryFiles stores files in memory and injects faults.
type memoryFiles struct {
	mu    sync.Mutex
	files map[string][]byte
	calls map[string]int       // by operation
	bytes map[string]int       // by operation
	fault func(op string) fate // nil for no faults
}

// fate is the injected outcome of a call.
type fate int

const (
	succeeds fate = iota
	failsBefore
	failsAfter
	failsHalf // half of the content is stored
)

func (f fate) String() string {
	return [...]string{"succeeds", "fails before", "fails after", "fails with half"}[f]
}

var errFault = errors.New("injected fault")

func newFiles() *memoryFiles {
	return &memoryFiles{files: map[string][]byte{}, calls: map[string]int{}, bytes: map[string]int{}}
}

// follow sets the function that injects faults from now on.
func (f *memoryFiles) follow(fault func(op string) fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// count returns the number of calls of an operation.
func (f *memoryFiles) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *memoryFiles) begin(op string) (fate, func()) {
	f.mu.Lock()
	f.calls[op]++
	if f.fault == nil {
		return succeeds, f.mu.Unlock
	}
	return f.fault(op), f.mu.Unlock
}

func (f *memoryFiles) Create(ctx context.Context, name string, content []byte) error {
	fate, end := f.begin("create")
	defer end()
	if err := ctx.Err(); err != nil {
		return err
	}
	if fate == failsBefore {
		return errFault
	}
	if fate == failsHalf {
		content = content[:len(content)/2]
	}
	if _, ok := f.files[name]; ok {
		return fmt.Errorf("there is a file %s", name)
	}
	f.files[name] = bytes.Clone(content)
	f.bytes["create"] += len(content)
	if fate != succeeds {
		return errFault
	}
	return nil
}

func (f *memoryFiles) ReadAt(_ context.Context, name string, offset int64, p []byte) error {
	fate, end := f.begin("read")
	defer end()
	if fate != succeeds {
		return errFault
	}
	content, ok := f.files[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrGone)
	}
	f.bytes["read"] += len(p)
	if n := copy(p, content[min(offset, int64(len(content))):]); n < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (f *memoryFiles) Remove(_ context.Context, name string) error {
	fate, end := f.begin("remove")
	defer end()
	if fate == failsBefore {
		return errFault
	}
	delete(f.files, name)
	if fate != succeeds {
		return errFault
	}
	return nil
}

func (f *memoryFiles) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.files))
}

// contents is the model of a base: a map for each table.
type contents [3]map[string]string

func (c contents) clone() contents {
	for table := range c {
		c[table] = maps.Clone(c[table])
	}
	return c
}

// stage is a base in memory and its expected contents.
type stage struct {
	testing.TB
	files    *memoryFiles
	manifest []byte              // last committed manifest
	truth    map[uint64]contents // expected contents by last group
	last     uint64
	random   *rand.Rand
	*Base
}

func newStage(t testing.TB, seed uint64) *stage {
	s := &stage{TB: t, files: newFiles(), random: rand.New(rand.NewPCG(seed, 0)), truth: map[uint64]contents{0: {{}, {}, {}}}}
	s.open()
	return s
}

func (s *stage) config() Config {
	return Config{
		Tables: testTables, Files: s.files, Commit: s.commit, Logger: slog.New(slog.DiscardHandler), Seed: []byte("hub"),
		BlockSize: 200, FileSize: 2000, Cache: NewCache(10_000, 10_000),
	}
}

func (s *stage) commit(_ uint64, manifest []byte) error {
	fate, end := s.files.begin("commit")
	defer end()
	switch fate {
	case failsBefore:
		return errFault
	case succeeds:
		s.manifest = manifest
		return nil
	case failsAfter:
		s.manifest = manifest
	case failsHalf:
	}
	return &logstore.UncertainError{Cause: errFault}
}

func (s *stage) open() {
	s.Helper()
	b, err := Open(s.Context(), s.config(), s.manifest)
	if err != nil {
		s.Fatal(err)
	}
	s.Base = b
	s.last = b.Last()
}

// layer returns a random layer and records the contents after it.
func (s *stage) layer(changes int) *logstore.Layer {
	l := logstore.NewLayer(testTables, s.last+1)
	after := s.truth[s.last].clone()
	set := func(table logstore.Table, key, value string, remove bool) {
		if remove {
			l.Set(table, key, nil)
			delete(after[table], key)
			return
		}
		l.Set(table, key, []byte(value))
		after[table][key] = value
	}
	for range changes {
		remove := s.random.IntN(3) == 0
		size := s.random.IntN(40)
		if s.random.IntN(40) == 0 {
			size = s.random.IntN(5000)
		}
		value := strings.Repeat(string(rune('a'+s.random.IntN(26))), size)
		switch table := logstore.Table(s.random.IntN(len(testTables))); {
		case table == plain:
			set(plain, fmt.Sprintf("key %d", s.random.IntN(300)), value, remove)
		case s.random.IntN(20) == 0: // delete a whole group
			prefix := string(logstore.NumberKey(s.group()))
			for key := range s.truth[s.last][table] {
				if strings.HasPrefix(key, prefix) {
					set(table, key, "", true)
				}
			}
		default:
			set(table, string(logstore.NumberKey(s.group()))+strings.Repeat("x", s.random.IntN(8)), value, remove)
		}
	}
	s.truth[s.last+1] = after
	return l
}

func (s *stage) group() uint64 {
	if s.random.IntN(10) == 0 {
		return 255 + uint64(s.random.IntN(3)) // the key prefixes end with ff and 00
	}
	return uint64(s.random.IntN(60))
}

// write writes a random layer.
func (s *stage) write(changes int, closing bool) error {
	err := s.Write(s.layer(changes), closing)
	if err == nil {
		s.last++
	}
	return err
}

// settle waits for merges.
func (s *stage) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.merges > 0 {
		s.merged.Wait()
	}
}

// compare compares all results of reads with the model.
func (s *stage) compare() {
	s.Helper()
	if err := s.View(func(r logstore.Reader) error { return s.differs(r, s.truth[s.last]) }); err != nil {
		s.Fatal(err)
	}
}

// differs returns an error if reads do not return want.
func (s *stage) differs(r logstore.Reader, want contents) error {
	for id := range testTables {
		table := logstore.Table(id)
		froms := []string{"", "\xff", string(logstore.NumberKey(uint64(s.random.IntN(60)))), fmt.Sprintf("key %d", s.random.IntN(400))}
		for _, from := range froms {
			var wanted []string
			for _, key := range slices.Sorted(maps.Keys(want[id])) {
				if key >= from {
					wanted = append(wanted, key+"="+want[id][key])
				}
			}
			most := len(wanted) + 1
			if s.random.IntN(3) == 0 && len(wanted) > 0 {
				most = 1 + s.random.IntN(len(wanted))
				wanted = wanted[:most]
			}
			var got []string
			err := r.Scan(table, []byte(from), func(key []byte, value func() ([]byte, error)) (bool, error) {
				v, err := value()
				got = append(got, string(key)+"="+string(v))
				return len(got) == most, err
			})
			if err != nil {
				return err
			}
			if !slices.Equal(wanted, got) {
				return fmt.Errorf("scan of %d from %q: (-want +got)\n%s", table, from, cmp.Diff(wanted, got))
			}
		}
		left := 100 // keys to look up, in random order
		for key, value := range want[id] {
			if left--; left < 0 {
				break
			}
			if got, err := r.Get(table, []byte(key)); err != nil || got == nil || string(got) != value {
				return fmt.Errorf("get %d %q: %q, %w; want %q", table, key, got, err, value)
			}
		}
		for _, key := range []string{"key", "key 1000", string(logstore.NumberKey(5)) + "unknown", ""} {
			if got, err := r.Get(table, []byte(key)); err != nil || got != nil {
				return fmt.Errorf("get %d %q: %q, %w; want nothing", table, key, got, err)
			}
		}
		if !testTables[id].Grouped {
			continue
		}
		for _, group := range []uint64{0, 1, uint64(s.random.IntN(60)), 58, 59, 60, 255, 256, 257, 1 << 63, 1<<64 - 1} {
			var wanted, got []string
			for _, key := range slices.Sorted(maps.Keys(want[id])) {
				if strings.HasPrefix(key, string(logstore.NumberKey(group))) {
					wanted = append(wanted, key)
				}
			}
			err := r.Group(table, group, func(key []byte, value func() ([]byte, error)) error {
				v, err := value()
				if string(v) != want[id][string(key)] {
					return fmt.Errorf("group %d has %q under %q", group, v, key)
				}
				got = append(got, string(key))
				return err
			})
			if err != nil {
				return err
			}
			if !slices.Equal(wanted, got) {
				return fmt.Errorf("group %d of %d: (-want +got)\n%s", group, table, cmp.Diff(wanted, got))
			}
			last, err := r.Last(table, group)
			if err != nil || string(last) != lastOf(wanted) || (last == nil) != (len(wanted) == 0) {
				return fmt.Errorf("last of group %d of %d: %q, %w; want %q", group, table, last, err, lastOf(wanted))
			}
		}
	}
	return nil
}

func lastOf(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[len(keys)-1]
}

func TestBase_ReturnsWrittenRecords(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testshare.Amount(12, 3)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, seed)
				defer func() { _ = s.Close() }()
				for range 40 {
					if err := s.write(s.random.IntN(60), false); err != nil {
						t.Fatal(err)
					}
					switch s.random.IntN(4) {
					case 0:
						s.settle()
					case 1:
						time.Sleep(time.Minute)
					}
					s.compare()
				}
				time.Sleep(10 * time.Minute)
				if diff := cmp.Diff(slices.Sorted(slices.Values(s.Names())), s.files.names()); diff != "" {
					t.Errorf("files after the removal delay (-named +stored)\n%s", diff)
				}
				if err := errors.Join(s.write(10, true), s.Close()); err != nil {
					t.Fatal(err)
				}
				s.open()
				s.compare()
			})
		})
	}
}
