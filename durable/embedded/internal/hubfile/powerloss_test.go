package hubfile

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk/powerloss"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	bolt "go.etcd.io/bbolt"
)

func newModel() (m model) {
	for id := range m {
		m[id] = make(map[string][]byte)
	}
	return m
}

func (m *model) clone() (c model) {
	for id := range m {
		c[id] = maps.Clone(m[id])
	}
	return c
}

// storedIn returns the content of a store's database. If the store was just opened, that is its
// whole content.
func storedIn(t *testing.T, s *opened) model {
	t.Helper()
	m := newModel()
	err := s.file.db.View(func(tx *bolt.Tx) error {
		for id := range tableCount {
			b, err := newReader(tx, testTables).bucket(id)
			if err != nil {
				return err
			}
			err = b.scan(nil, func(key []byte, read func() ([]byte, error)) (bool, error) {
				value, err := read()
				m[id][string(key)] = slices.Clone(value)
				return false, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// indexIn returns the index of the latest of the states that equals m, or -1.
func (m *model) indexIn(states []model) int {
	for i, s := range slices.Backward(states) {
		same := true
		for id := range m {
			same = same && maps.EqualFunc(m[id], s[id], bytes.Equal)
		}
		if same {
			return i
		}
	}
	return -1
}

// The power is lost at any moment: between two disk calls, while the journal turns, while a layer
// is written to the database. A durable hub keeps everything acknowledged, and all or nothing of
// the group being written. A relaxed hub returns to one of its states since it was opened.
func TestStore_SurvivesPowerLosses(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testshare.Amount(24, 6)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			p := &powered{T: t, r: r, relaxed: seed%3 == 2, states: []model{newModel()}}
			p.open(t.TempDir())
			for range 150 {
				p.step()
			}
			if err := p.s.Close(); err != nil {
				t.Fatal(err)
			}
			if p.losses == 0 {
				t.Error("the power was never lost")
			}
		})
	}
}

// powered is a store on a disk that loses power.
type powered struct {
	*testing.T
	r       *rand.Rand
	relaxed bool
	s       *opened
	dir     string
	disk    *powerloss.Disk
	next    uint64
	losses  int
	// states are the states of the store since it was opened, in order. The last one was
	// acknowledged.
	states []model
}

func (p *powered) open(dir string) {
	p.Helper()
	d, restore, err := powerloss.Install(dir)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(restore)
	p.dir, p.disk = dir, d
	cfg := quiet
	cfg.Relaxed = p.relaxed
	s := openStore(p.T, filepath.Join(dir, "hub.db"), cfg)
	s.Limits.FlushSize = int64(5_000 + p.r.IntN(40_000))
	s.Start()
	p.s = s
}

// step changes the store. The power may be lost during the change or after it.
func (p *powered) step() {
	p.Helper()
	now := p.states[len(p.states)-1].clone()
	at, image := -1, ""
	if p.r.IntN(6) == 0 {
		at = p.r.IntN(4)
	}
	calls := 0
	p.disk.Before(func(string) { // runs while change waits
		if calls++; calls == at+1 {
			image = p.lose()
		}
	})
	now.change(p.T, p.s, p.r, &p.next)
	p.disk.Before(nil)
	if image != "" {
		p.resume(image, append(p.states, now))
		return
	}
	p.states = append(p.states, now)
	switch p.r.IntN(20) {
	case 0:
		p.resume(p.lose(), p.states)
	case 1: // a layer may be on its way to the database
		if err := p.s.Close(); err != nil {
			p.Fatal(err)
		}
		p.states = p.states[len(p.states)-1:]
		p.open(p.dir)
		if got := storedIn(p.T, p.s); got.indexIn(p.states) < 0 {
			p.Fatal("the content of the store has changed after closing and opening it")
		}
	}
}

// lose returns a folder with the files that a power loss leaves.
func (p *powered) lose() (dir string) {
	p.losses++
	dir, err := os.MkdirTemp(p.TempDir(), "")
	if err != nil {
		panic(err) // Fatal must not be called in the writer's goroutine
	}
	err = p.disk.Lose(p.r, dir, func(from, to string) error {
		if filepath.Base(from) != "hub.db" {
			return powerloss.CopyFile(from, to)
		}
		return p.s.file.db.View(func(tx *bolt.Tx) error { return tx.CopyFile(to, 0o600) })
	})
	if err != nil {
		panic(err)
	}
	return dir
}

// resume opens the files that a power loss left. states are the states before it; the last one may
// not have been acknowledged.
func (p *powered) resume(dir string, states []model) {
	p.Helper()
	p.s.closeFiles()
	p.open(dir)
	got := storedIn(p.T, p.s)
	i := got.indexIn(states)
	acknowledged := len(p.states) - 1
	switch {
	case i < 0:
		p.Fatalf("after %d states and a power loss, the hub has a state that it never had", len(states))
	case !p.relaxed && i < acknowledged:
		p.Fatalf("after a power loss the hub is in state %d; %d was acknowledged", i, acknowledged)
	}
	p.states = []model{states[i]}
}

// closeFiles leaves a store as an ending process does, together with its flusher.
func (s *opened) closeFiles() {
	s.Stop()
	s.die()
}

// By default bbolt syncs its pages before it commits them. The package must not disable that.
func TestStore_LetsTheDatabaseSync(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		cfg := quiet
		cfg.Relaxed = relaxed
		s := openStore(t, filepath.Join(t.TempDir(), "hub.db"), cfg)
		if s.file.db.NoSync || s.file.db.NoGrowSync || s.file.db.NoFreelistSync {
			t.Errorf("relaxed %v: the database has NoSync %v, NoGrowSync %v, NoFreelistSync %v", relaxed, s.file.db.NoSync, s.file.db.NoGrowSync, s.file.db.NoFreelistSync)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A durable group takes one sync, a relaxed group none.
func TestStore_SyncsEachGroupUnlessItIsRelaxed(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		p := &powered{T: t, r: rand.New(rand.NewPCG(1, 1)), relaxed: relaxed}
		p.open(t.TempDir())
		m, before := newModel(), p.disk.Count("sync")
		const groups = 20
		for range groups {
			m.change(t, p.s, p.r, &p.next)
		}
		want := groups
		if relaxed {
			want = 0
		}
		if got := p.disk.Count("sync") - before; got != want {
			t.Errorf("relaxed %v: %d groups took %d syncs, want %d", relaxed, groups, got, want)
		}
		if err := p.s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// When the hub is closed while a layer is being written to the database, that layer is written
// before the later changes.
func TestStore_CanBeClosedWhileALayerIsWritten(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		cfg := quiet
		cfg.Relaxed = relaxed
		path := filepath.Join(t.TempDir(), "hub.db")
		s := openStore(t, path, cfg) // no flusher is running
		s.Limits.FlushSize = 2_000
		r, m, next := rand.New(rand.NewPCG(3, 3)), newModel(), uint64(0)
		for flushing := false; !flushing; flushing, _ = s.Flushing() {
			m.change(t, s, r, &next)
		}
		for range 5 { // in the next layer
			m.change(t, s, r, &next)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = newStore(t, path)
		if got := storedIn(t, s); got.indexIn([]model{m}) < 0 {
			t.Errorf("relaxed %v: the content of the store has changed after closing and opening it", relaxed)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A record may end exactly at the end of the file, or shortly before it, where no other record
// fits.
func TestJournal_StoresGroupsThatFillTheFile(t *testing.T) {
	t.Parallel()
	for left := range 3 * recordAlign {
		for _, relaxed := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "hub.db")
			j := newJournal(t, path, relaxed)
			if err := j.Append(1, parts(make([]byte, minStretch-recordHead-left))); err != nil {
				t.Fatal(err)
			}
			j.mustAppend(t, 2)
			groups, lost, err := newJournal(t, path, relaxed).recover(0)
			if err != nil || lost > 0 || len(groups) != 2 || len(groups[0].payload) != minStretch-recordHead-left {
				t.Errorf("%d bytes free, relaxed %v: %d groups, lost %d, %v", left, relaxed, len(groups), lost, err)
			}
			if err := os.Truncate(journalPath(path, 0), int64(minStretch-left)); err != nil { // removes the padding
				t.Fatal(err)
			}
			groups, _, err = newJournal(t, path, relaxed).recover(0)
			if err != nil || len(groups) != 1 {
				t.Errorf("%d bytes free, relaxed %v, truncated there: %d groups, %v; want the first", left, relaxed, len(groups), err)
			}
		}
	}
}

// The journal files grow rarely, in stretches, so that most syncs need not write the file's size
// and block list. The first stretch is short.
func TestJournal_GrowsByStretches(t *testing.T) {
	t.Parallel()
	const group, groups = 700, 3000
	path := filepath.Join(t.TempDir(), "hub.db")
	j := newJournal(t, path, false)
	var sizes []int64
	for n := range uint64(groups) {
		if err := j.Append(n+1, parts(make([]byte, group))); err != nil {
			t.Fatal(err)
		}
		if size := sizeOf(t, journalPath(path, 0)); len(sizes) == 0 || size != sizes[len(sizes)-1] {
			sizes = append(sizes, size)
		}
	}
	want := []int64{minStretch, 2 * minStretch}
	for size := int64(maxStretch); len(want) == 2 || want[len(want)-1] < groups*(recordHead+group); size += maxStretch {
		want = append(want, size)
	}
	if !slices.Equal(sizes, want) {
		t.Errorf("the file grew to the sizes %v, want %v", sizes, want)
	}
	j.Rotate()
	j.Rotate() // after the second turn each file has its final size
	for n := range uint64(groups) {
		if err := j.Append(groups+n+1, parts(make([]byte, group))); err != nil {
			t.Fatal(err)
		}
	}
	if size := sizeOf(t, journalPath(path, 0)); size != want[len(want)-1] {
		t.Errorf("after a second turn the file has %d bytes, want %d", size, want[len(want)-1])
	}
}

// If all records have the same size, old records start exactly where new ones do. A power loss at
// any moment removes random unsynced blocks. The remaining groups must end with the last
// acknowledged group or the next one.
func TestJournal_DistinguishesRecordsOfEarlierTurns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testshare.Amount(12, 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 11))
			dir := t.TempDir()
			d, restore, err := powerloss.Install(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer restore()
			j := newJournal(t, filepath.Join(dir, "hub.db"), false)
			size := 1 + r.IntN(3*powerloss.Block)
			payload := func(n uint64) []byte { return bytes.Repeat([]byte{byte(n)}, size) }
			acknowledged, turned, applied := uint64(0), uint64(0), uint64(0)
			d.Before(func(string) {
				to := t.TempDir()
				if err := d.Lose(r, to, powerloss.CopyFile); err != nil {
					t.Fatal(err)
				}
				left, err := openJournal(filepath.Join(to, "hub.db"), testID, false)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = left.close() }()
				groups, lost, err := left.recover(applied)
				last := applied + uint64(len(groups))
				if err != nil || lost > 0 || last != acknowledged && last != acknowledged+1 {
					t.Fatalf("groups up to %d remain, %d lost, %v; %d was acknowledged", last, lost, err, acknowledged)
				}
				for i, g := range groups {
					if want := applied + uint64(i) + 1; g.number != want || !bytes.Equal(g.payload, payload(want)) {
						t.Fatalf("group %d has a wrong payload", want)
					}
				}
			})
			for range 60 {
				if err := j.Append(acknowledged+1, parts(payload(acknowledged+1))); err != nil {
					t.Fatal(err)
				}
				acknowledged++
				if r.IntN(4) == 0 { // the groups before the current file's are in the database
					j.Rotate()
					applied, turned = turned, acknowledged
				}
			}
		})
	}
}
