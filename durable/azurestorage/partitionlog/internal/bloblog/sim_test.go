package bloblog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

var seeds = chaintest.NewSeeds("log")

// world is a partition in a simulated account, and the groups of its log that processes have
// observed. An acknowledged, recovered or read group must never change.
type world struct {
	t       *testing.T
	account *azsim.Account

	mu     sync.Mutex
	groups map[uint64]string
	hashes map[uint64]uint64 // by group number: hash of all groups up to it
	acked  uint64
	owners map[*Log]string // open logs, with the names of their owners
}

func newWorld(t *testing.T, cfg azsim.Config) *world {
	return &world{t: t, account: chaintest.NewAccount(t, cfg), groups: map[uint64]string{}, hashes: map[uint64]uint64{0: 0}, owners: map[*Log]string{}}
}

func (w *world) config(p *chaintest.Process) Config {
	return Config{Blobs: chaintest.Simulated(w.t, w.account, p), Hub: "hub", Prefix: "p00/", Lease: 15 * time.Second, MaxBlock: 300, MaxSize: 4000, MaxBlocks: 40, Clock: p.Clock()}
}

// saw records a group that a process has observed.
func (w *world) saw(who string, number uint64, changes []byte, acked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.groups[number]; ok && was != string(changes) {
		w.t.Errorf("%s: group %d changed: got %.40q, want %.40q", who, number, changes, was)
		return
	}
	w.groups[number] = string(changes)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", w.hashes[number-1], changes) // never fails
	if w.hashes[number] = h.Sum64(); acked {
		w.acked = max(w.acked, number)
	}
}

// setOwner records that a process uses its log, or does not use it any more if who is "".
func (w *world) setOwner(l *Log, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[l] = who; who == "" {
		delete(w.owners, l)
	}
}

// oneIsValid checks that at most one owner considers its lease valid, even if a machine has slept or its
// wall clock was set.
func (w *world) oneIsValid() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var valid []string
	for l, who := range w.owners {
		if l.IsValid() {
			valid = append(valid, who)
		}
	}
	if len(valid) > 1 {
		w.t.Errorf("%q consider their leases valid at the same time", valid)
	}
}

func (w *world) ackedSoFar() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// manifest returns the manifest of a base with all groups up to last.
func (w *world) manifest(last uint64) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Appendf(nil, "%d:%d", last, w.hashes[last])
}

// check verifies what a process recovered. acked is the last group that was acknowledged before it
// started.
func (w *world) check(who string, r *Recovered, acked uint64) {
	w.t.Helper()
	if want := w.manifest(r.Base); r.Base > 0 && string(r.Manifest) != string(want) || r.Base == 0 && r.Manifest != nil {
		w.t.Errorf("%s: got the manifest %q of group %d, want %q", who, r.Manifest, r.Base, want)
	}
	last := r.Base
	for _, f := range r.Groups {
		if last++; f.Number != last {
			w.t.Errorf("%s recovered group %d after %d", who, f.Number, last-1)
		}
		w.saw(who, f.Number, f.Changes, false)
	}
	if last != r.Last || last < acked {
		w.t.Errorf("%s recovered groups up to %d, reported Last %d; %d were acknowledged", who, last, r.Last, acked)
	}
}

// own repeatedly opens the log, uses it for a while, and closes or abandons it, until stop.
func (w *world) own(who string, cfg Config, random *rand.Rand, stop func() bool) {
	for round := 0; !stop(); round++ {
		acked := w.ackedSoFar()
		l, r, err := Open(w.t.Context(), cfg)
		if err != nil {
			if errors.As(err, new(*chain.DamageError)) {
				w.t.Errorf("%s: %v", who, err)
				return
			}
			time.Sleep(time.Duration(1+random.IntN(6)) * time.Second)
			continue
		}
		if w.check(who, r, acked); w.t.Failed() {
			l.Abandon()
			return
		}
		name := fmt.Sprintf("%s-%d", who, round)
		w.setOwner(l, name)
		w.use(l, r, name, random, stop)
		w.setOwner(l, "")
		if random.IntN(2) == 0 {
			_ = l.Close(false)
		}
		l.Abandon()
		l.renewal.Wait()
		l.tasks.Wait()
	}
}

// use appends groups, rotates the log and sets bases for a while, or until the log is lost.
func (w *world) use(l *Log, r *Recovered, who string, random *rand.Rand, stop func() bool) {
	var bases sync.WaitGroup
	defer bases.Wait()
	last, turn, base := r.Last, r.Last, r.Base
	for n := random.IntN(60); n > 0 && !stop(); n-- {
		w.oneIsValid()
		changes := fmt.Appendf(nil, "%s %d %d", who, last+1, n)
		if random.IntN(8) == 0 {
			changes = append(changes, bytes.Repeat([]byte("x"), random.IntN(1500))...)
		}
		switch err := l.Append(last+1, parts(changes)); {
		case errors.As(err, new(*logstore.UncertainError)):
			return
		case err != nil:
			time.Sleep(time.Second)
			continue
		}
		last++
		w.saw(who, last, changes, true)
		switch random.IntN(12) {
		case 0:
			turn = last
			l.Rotate()
		case 1:
			if to := turn - uint64(random.IntN(3)); turn > 3 && to > base {
				base = to
				manifest := w.manifest(to)
				bases.Go(func() { _ = l.SetBase(to, manifest) })
				if random.IntN(2) == 0 {
					bases.Wait()
				}
			}
		case 2:
			time.Sleep(time.Duration(random.IntN(40)) * time.Second)
		default:
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		}
	}
}

// read follows the log until stop, and reads it once more after that.
func (w *world) read(who string, cfg Config, random *rand.Rand, stop func() bool) {
	var reader *Reader
	var last uint64
	for n := 0; ; {
		acked, stopped := w.ackedSoFar(), stop()
		if reader == nil {
			opened, r, err := OpenReader(w.t.Context(), cfg)
			if errors.As(err, new(*chain.DamageError)) {
				w.t.Errorf("%s: %v", who, err)
				return
			}
			if err == nil {
				w.check(who, r, acked)
				reader, last = opened, r.Last
			}
		} else {
			frames, err := reader.Next(w.t.Context())
			if errors.Is(err, ErrReopen) {
				reader = nil
				continue
			}
			if errors.As(err, new(*chain.DamageError)) {
				w.t.Errorf("%s: %v", who, err)
				return
			}
			for _, f := range frames {
				n++
				switch {
				case f.Manifest != nil:
					if want := w.manifest(f.Number); string(f.Manifest) != string(want) {
						w.t.Errorf("%s read the manifest %q of group %d, want %q", who, f.Manifest, f.Number, want)
					}
				case f.Number != last+1:
					w.t.Errorf("%s read group %d after %d", who, f.Number, last)
					fallthrough
				default:
					last = f.Number
					w.saw(who, f.Number, f.Changes, false)
				}
			}
			if err == nil && last < acked {
				w.t.Errorf("%s read up to group %d; %d were acknowledged before", who, last, acked)
			}
			if err == nil && stopped || w.t.Failed() {
				return
			}
		}
		if reader == nil && stopped && w.t.Failed() {
			return
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) // real time: all callers run in a bubble
	}
}

// end opens the log once more, in a process without faults.
func (w *world) end() {
	l, r, err := Open(w.t.Context(), w.config(chaintest.NewProcess(w.account.Worker(chaintest.Last))))
	if err != nil {
		w.t.Errorf("final Open: %v", err)
		return
	}
	w.check("last", r, w.acked)
	l.Abandon()
	l.renewal.Wait()
}

func TestLog_KeepsAcknowledgedGroupsUnderFaults(t *testing.T) {
	seeds.Each(t, 30*time.Minute, func(t *testing.T, seed uint64, stop func() bool) {
		w := newWorld(t, chaintest.FaultyConfig(seed, 20+30*(seed%4), stop))
		var all sync.WaitGroup
		for i := range uint64(3) {
			name := fmt.Sprintf("owner %d", i)
			p := chaintest.NewProcess(w.account.Worker(name))
			p.Freeze = chaintest.RandomFreezes(seed*10+i, 80, stop)
			cfg := w.config(p)
			if seed%2 == 1 { // many owners find a full blob
				cfg.MaxBlocks = 8
			}
			all.Go(func() { w.own(name, cfg, rand.New(rand.NewPCG(seed, i)), stop) })
		}
		for i := range uint64(2) {
			name := fmt.Sprintf("reader %d", i)
			p := chaintest.NewProcess(w.account.Worker(name))
			p.Freeze = chaintest.RandomFreezes(seed*10+5+i, 100, stop)
			all.Go(func() { w.read(name, w.config(p), rand.New(rand.NewPCG(seed, 5+i)), stop) })
		}
		all.Wait()
		w.account.Wait()
		time.Sleep(2 * time.Minute) // all leases expire
		w.end()
		w.account.Wait()
		t.Logf("%d groups acknowledged, %d blobs remain", w.acked, len(w.account.Blobs()))
		chaintest.LogEnd(t, w.account, 60)
	})
}

// The test freezes an owner before or after each of its requests. Meanwhile other processes take
// over the log, continue in new blobs and delete the owner's blobs. Then the owner wakes.
func TestLog_AFrozenOwnerDoesNoHarmWhenItWakes(t *testing.T) {
	t.Parallel()
	script := func(w *world, who string, cfg Config, random *rand.Rand, rounds int) {
		for range rounds {
			acked := w.ackedSoFar()
			l, r, err := Open(w.t.Context(), cfg)
			if errors.As(err, new(*chain.DamageError)) || err != nil && who != "first" && !errors.As(err, new(*HeldError)) {
				w.t.Errorf("%s: %v", who, err)
				return
			}
			if err != nil {
				time.Sleep(4 * time.Second) // real time: all callers run in a bubble
				continue
			}
			w.check(who, r, acked)
			last := r.Last
			for i := range 6 {
				changes := fmt.Appendf(nil, "%s %d", who, last+1)
				if err := l.Append(last+1, parts(changes)); err != nil {
					break
				}
				last++
				w.saw(who, last, changes, true)
				if i == 1 || i == 3 {
					l.Rotate()
				}
				if i == 4 {
					_ = l.SetBase(last-2, w.manifest(last-2))
				}
			}
			if random.IntN(2) == 0 {
				_ = l.Close(false)
			}
			l.Abandon()
			l.renewal.Wait()
			l.tasks.Wait()
		}
	}
	frozen := 0
	for at := 1; at == 1 || at <= frozen; at += testshare.Amount(1, 4) {
		for i := range 4 {
			after, long := i%2 == 0, time.Duration(i/2)*4*time.Minute+50*time.Second
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
				p := chaintest.NewProcess(w.account.Worker("first"))
				p.Freeze = func(n int, is bool) time.Duration {
					if n == at && is == after {
						return long
					}
					return 0
				}
				var first sync.WaitGroup
				first.Go(func() { script(w, "first", w.config(p), rand.New(rand.NewPCG(1, 1)), 2) })
				for i, who := range []string{"second", "third", "fourth"} {
					time.Sleep(20 * time.Second / time.Duration(i+1))
					script(w, who, w.config(chaintest.NewProcess(w.account.Worker(who))), rand.New(rand.NewPCG(uint64(i), uint64(at))), 4)
				}
				first.Wait()
				time.Sleep(time.Minute)
				w.end()
				w.account.Wait()
				if t.Failed() {
					t.Logf("frozen at request %d, after its effect: %v, for %v\n%s", at, after, long, w.account.Trace())
				}
				frozen = max(frozen, p.Requests())
			})
			if t.Failed() {
				return
			}
		}
	}
	if frozen < 20 {
		t.Errorf("the owner made %d requests, want more", frozen)
	}
}

// A process is frozen between listing a log and acquiring its lease. Meanwhile the listed blob is
// deleted, and a repeated create request recreates it. The process must not acquire the recreated
// blob.
func TestOpen_DoesNotAcquireABlobRecreatedAfterTheList(t *testing.T) {
	for _, used := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
			cfg := w.config(chaintest.NewProcess(w.account.Worker("owner")))
			if used { // else the log was created but never opened
				first, _ := open(t, cfg)
				if err := first.Close(false); err != nil {
					t.Fatal(err)
				}
			} else if _, _, err := cfg.chain().Create(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			made, _, err := cfg.chain().Find(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			content := w.account.Blobs()[0].Content

			p := chaintest.NewProcess(w.account.Worker("frozen"))
			p.Freeze = func(n int, after bool) time.Duration {
				if n == 1 && after {
					return 30 * time.Second
				}
				return 0
			}
			var frozen sync.WaitGroup
			frozen.Go(func() {
				l, _, err := Open(w.t.Context(), w.config(p))
				if !errors.As(err, new(*HeldError)) {
					t.Errorf("Open: %v; want a HeldError", err)
				}
				if err == nil {
					l.Abandon()
					l.renewal.Wait()
				}
			})
			time.Sleep(time.Second)
			l, _ := open(t, cfg)
			for n := uint64(1); n < 4; n++ {
				appendGroups(t, l, n, n)
				l.Rotate()
			}
			appendGroups(t, l, 4, 4)
			if err := l.SetBase(4, []byte("4")); err != nil {
				t.Fatal(err)
			}
			l.tasks.Wait()
			b := cfg.Blobs.AppendBlob("p00/log-0000000001")
			if _, err := b.Create(t.Context(), map[string]string{"nonce": made.Nonce}); err != nil {
				t.Fatal(err)
			}
			if len(content) > 0 {
				if err := b.Acquire(t.Context(), made.Nonce, time.Minute, ""); err != nil {
					t.Fatal(err)
				}
				if _, _, err := b.Append(t.Context(), content, made.Nonce, 0); err != nil {
					t.Fatal(err)
				}
				if err := b.Release(t.Context(), made.Nonce); err != nil {
					t.Fatal(err)
				}
			}
			frozen.Wait()
			appendGroups(t, l, 5, 5)
			l.Abandon()
			l.renewal.Wait()
			w.account.Wait()
		})
	}
}

// A former owner is frozen while it is about to delete a leftover blob. When it wakes, that number
// is the log of a newer owner, and no process owns it at the moment.
func TestLog_AFrozenOwnerDeletesNoNewerLogWhenItWakes(t *testing.T) {
	removed := 0
	for at := 1; at < 20; at++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
				cfg := w.config(chaintest.NewProcess(w.account.Worker("owner")))
				p := chaintest.NewProcess(w.account.Worker("frozen"))
				first, _ := open(t, w.config(p))
				if _, _, err := first.chain.Create(t.Context(), 2); err != nil { // a leftover
					t.Fatal(err)
				}
				begun := p.Requests()
				p.Freeze = func(n int, is bool) time.Duration {
					if n == begun+at && is == after {
						return 40 * time.Second
					}
					return 0
				}
				var frozen sync.WaitGroup
				frozen.Go(func() {
					first.Rotate()
					for n := uint64(1); n < 4; n++ {
						if err := first.Append(n, parts(group(n))); err != nil {
							break
						}
						w.saw("first", n, group(n), true)
					}
					first.Abandon()
				})
				time.Sleep(20 * time.Second)
				acked := w.ackedSoFar()
				second, r, err := Open(t.Context(), cfg)
				if err == nil { // else the first owner was not frozen
					w.check("second", r, acked)
					second.Rotate()
					for n := r.Last + 1; n < r.Last+3; n++ {
						appendGroups(t, second, n, n)
						w.saw("second", n, group(n), true)
					}
					if err := second.Close(false); err != nil {
						t.Fatal(err)
					}
				}
				frozen.Wait()
				first.renewal.Wait()
				first.tasks.Wait()
				time.Sleep(time.Minute)
				w.end()
				w.account.Wait()
				if t.Failed() {
					t.Logf("frozen at request %d, after its effect: %v\n%s", at, after, w.account.Trace())
				}
				if strings.Contains(w.account.Trace(), "DeleteBlob") {
					removed++
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	if removed == 0 {
		t.Error("no leftover blob was ever deleted")
	}
}

// A reader is frozen after it has listed the log. It must not read a blob that was deleted and
// recreated since.
func TestOpenReader_DoesNotReadABlobRecreatedAfterTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
		l, _ := open(t, w.config(chaintest.NewProcess(w.account.Worker("owner"))))
		goOn := func(from, to uint64) {
			for n := from; n <= to; n++ {
				l.Rotate()
				appendGroups(t, l, n, n)
			}
		}
		goOn(1, 2)
		second := l.before[len(l.before)-1].number + 1
		made, newest, err := l.chain.Find(t.Context(), second)
		if err != nil || !newest {
			t.Fatal(made, newest, err)
		}
		p := chaintest.NewProcess(w.account.Worker("reader"))
		p.Freeze = func(n int, after bool) time.Duration {
			if n == 2 && after { // it knows which blob is current
				return 30 * time.Second
			}
			return 0
		}
		var frozen sync.WaitGroup
		frozen.Go(func() {
			if _, r, err := OpenReader(w.t.Context(), w.config(p)); err != nil || r.Last != 5 {
				t.Errorf("read up to %+v: %v", r, err)
			}
		})
		time.Sleep(time.Second)
		goOn(3, 5)
		if err := l.SetBase(5, []byte("5")); err != nil {
			t.Fatal(err)
		}
		l.tasks.Wait()
		if _, err := l.chain.Blob(second).Create(t.Context(), map[string]string{"nonce": made.Nonce}); err != nil {
			t.Fatal(err)
		}
		frozen.Wait()
		l.Abandon()
		l.renewal.Wait()
		w.account.Wait()
	})
}
