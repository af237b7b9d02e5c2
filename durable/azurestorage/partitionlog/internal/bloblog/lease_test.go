package bloblog

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// simulated runs a test with an open log in a simulated account. Requests fail while outage is set.
func simulated(t *testing.T, test func(t *testing.T, w *world, cfg Config, l *Log, outage *atomic.Bool)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var outage atomic.Bool
		w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond, Decide: func(azsim.Request) azsim.Fault {
			if outage.Load() {
				return azsim.FailBefore
			}
			return azsim.None
		}})
		cfg := w.config(chaintest.NewProcess(w.account.Worker("owner")))
		l, _ := open(t, cfg)
		test(t, w, cfg, l, &outage)
		l.Abandon()
		l.renewal.Wait()
		l.tasks.Wait()
		w.account.Wait()
	})
}

// cancelAt is the transport of a process whose context ends at its n-th request: before the request
// reaches the account, or before its response reaches the process.
type cancelAt struct {
	next     policy.Transporter
	n        int
	response bool
	cancel   context.CancelFunc
	requests int
}

func (c *cancelAt) Do(req *http.Request) (*http.Response, error) {
	c.requests++
	isAt := c.requests == c.n
	if isAt && !c.response {
		c.cancel()
	}
	resp, err := c.next.Do(req)
	if isAt && c.response && err == nil {
		c.cancel()
		resp.Body.Close()
		return nil, context.Canceled
	}
	return resp, err
}

// A worker that stops while it opens a partition leaves no lease behind. Another worker can open the
// partition immediately.
func TestOpen_LeavesNoLeaseWhenItIsCanceled(t *testing.T) {
	t.Parallel()
	requests := 0
	for n := 0; n <= requests; n++ { // the first run has no cancellation
		for _, response := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
				closed, _ := open(t, w.config(chaintest.NewProcess(w.account.Worker("first"))))
				appendGroups(t, closed, 1, 3)
				if err := closed.Close(false); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stopping := &cancelAt{next: w.account.Worker("stopping"), n: n, response: response, cancel: cancel}
				l, _, err := Open(ctx, w.config(chaintest.NewProcess(stopping)))
				if n == 0 {
					requests = stopping.requests
				}
				if err == nil { // it was canceled too late
					if err := l.Close(false); err != nil {
						t.Errorf("opened although canceled at request %d, and closed: %v", n, err)
					}
				}
				for _, b := range w.account.Blobs() {
					if b.LeaseID != "" {
						t.Errorf("canceled at request %d, with its response %t: blob %s is leased", n, response, b.Name)
					}
				}
				next, r := open(t, w.config(chaintest.NewProcess(w.account.Worker("next"))))
				wantGroups(t, r.Groups, 1, 3)
				if err := next.Close(false); err != nil {
					t.Error(err)
				}
				w.account.Wait()
			})
		}
	}
	if requests < 4 {
		t.Errorf("Open made %d requests, want at least 4", requests)
	}
}

// Each opening appends to the log, also if no group follows. A full blob is continued, also by an owner
// that finds it full, and no group gets lost.
func TestOpen_ContinuesAFullBlob(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		appendGroups(t, l, 1, 3)
		const openings = 100
		for n := uint64(2); n <= openings; n++ {
			if err := l.Close(false); err != nil {
				t.Fatal(err)
			}
			var r *Recovered
			l, r = open(t, cfg)
			wantGroups(t, r.Groups, 1, 3)
			if r.OpenCount != n || r.CrashCount != 0 {
				t.Fatalf("opened %d times, %d crashes; want %d and none", r.OpenCount, r.CrashCount, n)
			}
			if leased := slices.DeleteFunc(w.account.Blobs(), func(b azsim.Blob) bool { return b.LeaseID == "" }); len(leased) != 1 {
				t.Fatalf("%d blobs are leased after opening %d, want the current one", len(leased), n)
			}
		}
		appends := map[string]int{}
		for _, e := range w.account.Log() {
			if e.Operation == "AppendBlock" {
				appends[e.Path]++
			}
		}
		for path, n := range appends {
			if n > cfg.MaxBlocks+4 {
				t.Errorf("%d appends to %s; want at most %d, and those that close and seal it", n, path, cfg.MaxBlocks)
			}
		}
		if len(appends) < 2*openings/(cfg.MaxBlocks+4) {
			t.Errorf("appends to %d blobs: %v", len(appends), appends)
		}
		appendGroups(t, l, 4, 6)
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
	})
}

// A failover of the account can lose the last opening of a log, although other logs have recorded its
// messages. The next opening has a higher number.
func TestOpen_HasAHigherNumberThanALostOpening(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
		kept := l.current.offset
		time.Sleep(10 * time.Minute)
		lost, r := open(t, cfg)
		if err := lost.Close(false); err != nil {
			t.Fatal(err)
		}
		if !w.account.Shorten(cfg.Blobs.Name, l.chain.Name(1), int(kept)) {
			t.Fatal("the log was not shortened")
		}
		time.Sleep(10 * time.Minute)
		next, again := open(t, cfg)
		if again.OpenCount <= r.OpenCount {
			t.Errorf("the opening after the failover has the number %d, want more than %d", again.OpenCount, r.OpenCount)
		}
		if err := next.Close(false); err != nil {
			t.Error(err)
		}
	})
}

func TestLog_RenewalsKeepAnIdleLog(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		before := len(w.account.Log())
		time.Sleep(time.Hour)
		if !l.IsValid() || l.Err() != nil {
			t.Errorf("the log is lost after an idle hour: %v", l.Err())
		}
		if got, want := len(w.account.Log())-before, int(time.Hour/(cfg.Lease/3)); got < want-2 || got > want+2 {
			t.Errorf("an idle hour took %d requests, want %d", got, want)
		}
		appendGroups(t, l, 1, 1)
	})
}

func TestLog_IsLostBeforeTheLeaseExpiresIfRenewalsFail(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, outage *atomic.Bool) {
		time.Sleep(time.Minute)
		outage.Store(true)
		began := time.Now()
		<-l.Lost()
		if after := time.Since(began); l.IsValid() || after > cfg.Lease || after < cfg.Lease/2 || !errors.Is(l.Err(), errLeaseExpired) {
			t.Errorf("lost after %v with a lease of %v: %v", after, cfg.Lease, l.Err())
		}
		if err := l.Append(1, parts(group(1))); !errors.As(err, new(*logstore.UncertainError)) {
			t.Errorf("Append: %v; want an UncertainError", err)
		}
		outage.Store(false)
		time.Sleep(cfg.Lease / 2)
		next, r := open(t, cfg)
		if r.OpenCount != 2 || r.CrashCount != 1 {
			t.Errorf("next owner: got %+v", r)
		}
		next.Abandon()
		next.renewal.Wait()
	})
}

// Another process may own the log as soon as the lease has ended by one clock. The owner notices that
// without a request: queries read its memory as long as it is valid. For the owner, a sleep of its
// machine looks like a wall clock that is set forward.
func TestLog_IsLostWhenItsLeaseHasEndedByOneClock(t *testing.T) {
	for _, tt := range []struct {
		name string
		step time.Duration // of the wall clock, in percent of the lease since its last renewal
		wait time.Duration // until the renewal is so old by the monotonic clock, in percent of the lease
		want bool
	}{
		{"a sleep that is shorter than the lease", 89, 0, true},
		{"a sleep of nine tenths of the lease", 90, 0, false},
		{"a sleep of the lease", 100, 0, false},
		{"a long sleep", 10_000, 0, false},
		{"a wall clock that is set back", -10_000, 0, true},
		{"a wall clock that is set back, just before the end", -10_000, 89, true},
		{"a wall clock that is set back, at the end", -10_000, 90, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulated(t, func(t *testing.T, _ *world, cfg Config, l *Log, outage *atomic.Bool) {
				if err := l.Renew(t.Context()); err != nil {
					t.Fatal(err)
				}
				outage.Store(true)
				renewed := l.current.renewed
				if tt.wait > 0 {
					time.Sleep(renewed.Add(tt.wait * cfg.Lease / 100).Left(cfg.Clock.Now()))
				}
				cfg.Clock.Step(renewed.Wall.Add(tt.step * cfg.Lease / 100).Sub(cfg.Clock.Now().Wall))
				if got := l.IsValid(); got != tt.want {
					t.Errorf("valid %t, want %t", got, tt.want)
				}
			})
		})
	}
}

func TestLog_SurvivesAnOutageThatIsShorterThanTheLease(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, outage *atomic.Bool) {
		outage.Store(true)
		time.AfterFunc(cfg.Lease*3/4, func() { outage.Store(false) })
		appendGroups(t, l, 1, 3)
		if !l.IsValid() {
			t.Errorf("the log is lost: %v", l.Err())
		}
	})
}

// sealing runs a test while a log appends a seal. The service has applied it, and the owner retries
// because it receives no response. release ends that.
func sealing(t *testing.T, test func(t *testing.T, l *Log, other Config, release func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
			isAppend := r.Operation == "AppendBlock" || r.Operation == "GetBlob"
			if lost.Load() && r.Worker == "owner" && isAppend && strings.HasSuffix(r.Path, "log-0000000001") {
				return azsim.FailAfter
			}
			return azsim.None
		}})
		l, _ := open(t, w.config(chaintest.NewProcess(w.account.Worker("owner"))))
		appendGroups(t, l, 1, 1)
		lost.Store(true)
		l.Rotate()
		var appended sync.WaitGroup
		appended.Go(func() { _ = l.Append(2, parts(group(2))) })
		time.Sleep(time.Second)
		test(t, l, w.config(chaintest.NewProcess(w.account.Worker("other"))), func() {
			lost.Store(false)
			appended.Wait()
		})
		l.Abandon()
		appended.Wait()
		l.renewal.Wait()
		l.tasks.Wait()
		w.account.Wait()
	})
}

// The log may belong to the process that leases the next blob, so the owner renews both leases.
func TestLog_RenewsBothLeasesWhileItSealsABlob(t *testing.T) {
	t.Parallel()
	sealing(t, func(t *testing.T, l *Log, other Config, release func()) {
		for range 60 {
			if next, _, err := Open(t.Context(), other); !errors.As(err, new(*HeldError)) {
				if t.Errorf("Open by another process: %v; want a HeldError", err); err == nil {
					next.Abandon()
				}
				return
			}
			time.Sleep(time.Second)
		}
		if release(); !l.IsValid() || l.history.last != 2 {
			t.Errorf("the log ends with group %d: %v", l.history.last, l.Err())
		}
	})
}

// A process that deletes files confirms its ownership by a renewal. The lease on the sealed blob does
// not suffice.
func TestLog_RenewFailsIfTheNextBlobHasAnotherOwner(t *testing.T) {
	t.Parallel()
	sealing(t, func(t *testing.T, l *Log, other Config, _ func()) {
		newest, _, err := l.chain.Find(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.chain.Blob(2).Break(t.Context(), newest.ETag); err != nil {
			t.Fatal(err)
		}
		next, r := open(t, other)
		wantGroups(t, r.Groups, 1, 1)
		if err := l.Renew(t.Context()); store.StatusOf(err) != http.StatusConflict {
			t.Errorf("Renew: %v; want a conflict", err)
		}
		next.Abandon()
		next.renewal.Wait()
	})
}

func TestLog_ABrokenLeaseEndsTheOwnership(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		appendGroups(t, l, 1, 3)
		newest, _, err := l.chain.Find(t.Context(), 1)
		if err != nil || newest.Number == 0 {
			t.Fatal(newest, err)
		}
		if err := l.chain.Blob(1).Break(t.Context(), newest.ETag); err != nil {
			t.Fatal(err)
		}
		next, r := open(t, cfg)
		wantGroups(t, r.Groups, 1, 3)
		appendGroups(t, next, 4, 4)
		if err := l.Append(4, parts([]byte("other"))); !errors.As(err, new(*logstore.UncertainError)) || l.IsValid() {
			t.Errorf("Append by the former owner: %v", err)
		}
		<-l.Lost()
		next.Abandon()
		next.renewal.Wait()
	})
}

func TestOpen_LeavesADamagedLogUnchanged(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		appendGroups(t, l, 1, 2)
		own := l.current
		for _, block := range []string{"dfl1 is what a frame begins with, and there it ends......", "dfl1"} {
			if _, _, err := own.Append(t.Context(), []byte(block), own.leaseID, store.AnyPosition); err != nil {
				t.Fatal(err)
			}
			if err := l.leases(own).Release(t.Context(), own.leaseID); err != nil {
				t.Fatal(err)
			}
			size := len(w.account.Blobs()[0].Content)
			_, _, err := Open(t.Context(), cfg)
			damage, ok := errors.AsType[*chain.DamageError](err)
			if !ok || damage.Blob != own.Name || damage.Offset != own.offset || !strings.Contains(err.Error(), own.Name) {
				t.Errorf("Open: %v; want damage of %s at offset %d", err, own.Name, own.offset)
			}
			if _, _, err := OpenReader(t.Context(), cfg); !errors.As(err, new(*chain.DamageError)) {
				t.Errorf("OpenReader: %v; want a DamageError", err)
			}
			after := w.account.Blobs()[0]
			if len(after.Content) != size || after.LeaseID != "" {
				t.Errorf("the blob changed from %d to %d bytes, lease %q; want no change and no lease", size, len(after.Content), after.LeaseID)
			}
			if err := own.Acquire(t.Context(), own.leaseID, cfg.Lease, ""); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A process may die between the appends of a group's parts. The incomplete group does not count,
// and its number is used again.
func TestLog_AGroupWithoutItsLastPartDoesNotCount(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		appendGroups(t, l, 1, 2)
		if err := l.appendTo(l.current, chain.Frame{Kind: kindFirst, Number: 3, Payload: []byte("lost")}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
		next, r := open(t, cfg)
		wantGroups(t, r.Groups, 1, 2)
		appendGroups(t, next, 3, 5)
		if err := next.Close(false); err != nil {
			t.Fatal(err)
		}
		next, r = open(t, cfg)
		wantGroups(t, r.Groups, 1, 5)
		next.Abandon()
		next.renewal.Wait()
	})
}

func TestOpen_RefusesAnInvalidLeaseDuration(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Second, 2 * time.Minute, 15500 * time.Millisecond} {
		if _, _, err := Open(t.Context(), Config{Lease: d}); err == nil || !strings.Contains(err.Error(), "want 15s to 60s") {
			t.Errorf("Open with a lease of %v: %v", d, err)
		}
	}
}

func TestLog_ReleaseEndsWithItsContext(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, outage *atomic.Bool) {
		outage.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if err := l.Release(ctx); err == nil || time.Since(began) > 3*time.Second {
			t.Errorf("Release returned after %v: %v", time.Since(began), err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("second Release: %v", err)
		}
	})
}

// A frozen former owner recreates a deleted blob that a reader was following.
func TestReader_DetectsAReplacedBlob(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		reader, _, err := OpenReader(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		content := w.account.Blobs()[0].Content
		for n := uint64(1); n < 4; n++ {
			l.Rotate()
			appendGroups(t, l, n, n)
		}
		if err := l.SetBase(3, []byte("3")); err != nil {
			t.Fatal(err)
		}
		l.tasks.Wait()
		if _, err := reader.Next(t.Context()); !errors.Is(err, ErrReopen) {
			t.Errorf("Next after the blob was deleted: %v; want ErrReopen", err)
		}
		b := l.chain.Blob(1)
		if _, err := b.Create(t.Context(), map[string]string{"nonce": "of another"}); err != nil {
			t.Fatal(err)
		}
		id := "11111111-1111-4111-8111-111111111111"
		if err := b.Acquire(t.Context(), id, cfg.Lease, ""); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Append(t.Context(), content, id, 0); err != nil {
			t.Fatal(err)
		}
		if frames, err := reader.Next(t.Context()); !errors.Is(err, ErrReopen) {
			t.Errorf("Next after the blob was replaced: %v, %v; want ErrReopen", frames, err)
		}
	})
}

func TestLog_AForeignAppendEndsTheOwnership(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		appendGroups(t, l, 1, 2)
		own := l.current
		other := l.chain.AppendFrame(nil, groupFrames(3, parts([]byte("other")), cfg.MaxBlock)[0])
		if _, _, err := own.Append(t.Context(), other, own.leaseID, own.offset); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(3, parts([]byte("mine!"))); !errors.As(err, new(*logstore.UncertainError)) || !errors.Is(err, errForeignAppend) || l.IsValid() {
			t.Errorf("Append: %v; want an UncertainError", err)
		}
	})
}

// A connection transfers each part of a group in 20 to 30 seconds, longer than the lease duration. The
// group is appended, and the lease is renewed meanwhile.
func TestLog_AppendsOverASlowConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, azsim.Config{Bandwidth: func(r azsim.Request) int { return map[bool]int{true: 10}[r.Operation == "AppendBlock"] }})
		cfg := w.config(chaintest.NewProcess(w.account.Worker("owner")))
		l, _ := open(t, cfg)
		began := time.Now()
		defer time.AfterFunc(time.Hour, l.Abandon).Stop() // else an endless Append hangs
		if err := l.Append(1, parts(make([]byte, 2*cfg.MaxBlock))); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || took > 5*time.Minute {
			t.Errorf("the append took %v; want some minutes", took)
		}
		if err := l.Close(false); err != nil {
			t.Error(err)
		}
		w.account.Wait()
	})
}

// A manifest deletes only blobs whose groups are all in the base.
func TestLog_KeepsTheGroupsThatTheBaseLacks(t *testing.T) {
	simulated(t, func(t *testing.T, _ *world, cfg Config, l *Log, _ *atomic.Bool) {
		for n := range uint64(5) { // each group has a blob of its own
			appendGroups(t, l, n+1, n+1)
			l.Rotate()
		}
		if err := l.SetBase(2, []byte("base")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
		next, r := open(t, cfg)
		wantGroups(t, r.Groups, 3, 5)
		if got, want := next.Size(), int64(len(group(3))+len(group(4))+len(group(5))); got != want {
			t.Errorf("the next owner's log has a size of %d bytes; want the %d bytes that the base lacks", got, want)
		}
		next.Abandon()
		next.renewal.Wait()
	})
}

func TestLog_AnAppendThatIsStoredAlreadySucceeds(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config, l *Log, _ *atomic.Bool) {
		own := l.current
		same := l.chain.AppendFrame(nil, groupFrames(1, parts(group(1)), cfg.MaxBlock)[0])
		if _, _, err := own.Append(t.Context(), same, own.leaseID, own.offset); err != nil {
			t.Fatal(err)
		}
		appendGroups(t, l, 1, 3)
		_, r, err := OpenReader(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		wantGroups(t, r.Groups, 1, 3)
	})
}
