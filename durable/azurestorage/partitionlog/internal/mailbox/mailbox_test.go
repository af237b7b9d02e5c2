package mailbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// simulated runs a test with a mailbox in a simulated account. Its blobs are full after two mails.
func simulated(t *testing.T, test func(t *testing.T, w *world, cfg Config)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
		cfg := w.config(chaintest.NewProcess(w.account.Worker("process")))
		cfg.MaxBlocks = 2
		test(t, w, cfg)
		w.account.Wait()
	})
}

func send(t *testing.T, s *Sender, mails ...string) {
	t.Helper()
	for _, mail := range mails {
		if err := s.Send(t.Context(), []byte(mail), Label{}); err != nil {
			t.Fatal(err)
		}
	}
}

// look receives one batch of mail.
func look(t *testing.T, r *Receiver) ([]Item, error) {
	t.Helper()
	b, err := r.Next(t.Context(), 1)
	return b.Items, err
}

// An interrupted call of Next keeps the downloaded bytes. The receiver holds only a part of the
// mailbox in memory.
func TestReceiver_ContinuesAnInterruptedDownload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cut := 0
		w := newWorld(t, azsim.Config{
			Bandwidth: func(r azsim.Request) int { return map[bool]int{true: 250_000}[r.Operation == "GetBlob"] },
			Decide: func(r azsim.Request) azsim.Fault {
				if r.Operation == "GetBlob" && r.Roll%3 == 0 {
					cut++
					return azsim.Cut
				}
				return azsim.None
			},
		})
		cfg := w.config(chaintest.NewProcess(w.account.Worker("process")))
		cfg.MaxBlocks, cfg.MaxBlock = 10, 0
		var want []int
		s := NewSender(cfg)
		for _, size := range []int{10, chain.MaxPayload, 3 << 20, 9 << 20, 2 << 20, 3 << 20, 20} {
			send(t, s, strings.Repeat("x", size))
			want = append(want, size)
		}
		var got []int
		r := NewReceiver(cfg, Position{})
		for looks := 1; len(got) < len(want) && looks < 100; looks++ {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			b, err := r.Next(ctx, int64(looks))
			cancel()
			if err != nil {
				t.Fatalf("look %d: %v", looks, err)
			}
			if b.Read > 10<<20 || len(r.buf)+len(r.letter) > 10<<20 {
				t.Errorf("look %d: read %d bytes, holds %d and %d; want a part of the mailbox", looks, b.Read, len(r.buf), len(r.letter))
			}
			for _, item := range b.Items {
				got = append(got, len(item.Payload))
			}
			if len(b.Items) > 0 {
				if err := r.DeleteUpTo(t.Context(), b.Items[len(b.Items)-1].End); err != nil {
					t.Error(err)
				}
			}
			if (b.Seen > 0) != (len(got) == len(want)) {
				t.Errorf("look %d: seen %d after %d of %d mails", looks, b.Seen, len(got), len(want))
			}
		}
		if !slices.Equal(got, want) || cut == 0 {
			t.Errorf("got mail of %d bytes, want %d; %d answers were cut off", got, want, cut)
		}
		if removed := strings.Count(w.account.Trace(), "DeleteBlob"); removed != 1 {
			t.Errorf("%d blobs were deleted, want the letter, once", removed)
		}
		w.account.Wait()
	})
}

// Batch.Seen advances even if senders are as fast as the receiver and the mailbox is never empty.
func TestReceiver_ReportsTheMomentWhoseMailIsComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, azsim.Config{Bandwidth: func(r azsim.Request) int { return map[bool]int{true: 1000}[r.Operation == "GetBlob"] }})
		cfg := w.config(chaintest.NewProcess(w.account.Worker("process")))
		cfg.MaxBlocks, cfg.MaxBlock = 1000, 0
		s, r := NewSender(cfg), NewReceiver(cfg, Position{})
		for range 10 {
			send(t, s, strings.Repeat("x", 1000))
		}
		var seen []int64
		taken := 0
		for look := range int64(40) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			b, err := r.Next(ctx, look+1)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if taken += len(b.Items); b.Seen > 0 {
				if seen = append(seen, b.Seen); taken < 9+int(b.Seen) {
					t.Errorf("moment %d was seen with %d mails", b.Seen, taken)
				}
			}
			send(t, s, strings.Repeat("x", 900)) // the mailbox is never empty
		}
		if len(seen) < 2 || seen[0] != 1 {
			t.Errorf("the moments seen are %d, want 1 and later ones", seen)
		}
	})
}

// receive receives all mail and deletes it.
func receive(t *testing.T, r *Receiver) (got []string) {
	t.Helper()
	for {
		items, err := look(t, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			return got
		}
		for _, item := range items {
			got = append(got, string(item.Payload))
		}
		if err := r.DeleteUpTo(t.Context(), items[len(items)-1].End); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMailbox_ARollOverTakesFewRequests(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		one, two := NewSender(cfg), NewSender(cfg)
		send(t, one, "1")
		send(t, two, "2") // now the blob is full
		send(t, two, "3")
		before := len(w.account.Log())
		send(t, one, "4")
		// Refused append, end frame, list, append. That blob is full, too: create, list, open,
		// close, end frame.
		if got := len(w.account.Log()) - before; got != 9 {
			t.Errorf("it took %d requests, want 9:\n%s", got, w.account.Trace())
		}
		if got := receive(t, NewReceiver(cfg, Position{})); strings.Join(got, " ") != "1 2 3 4" {
			t.Errorf("got %q", got)
		}
	})
}

func TestReceiver_SkipsALetterThatWasReceivedBefore(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		cfg.MaxBlocks = 10
		s, r := NewSender(cfg), NewReceiver(cfg, Position{})
		long := strings.Repeat("letter ", 100)
		send(t, s, long)
		if got := receive(t, r); len(got) != 1 || got[0] != long {
			t.Fatalf("got %q", got)
		}
		part, err := r.chain.Blob(1).Read(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.chain.Blob(1).Append(t.Context(), part.Content, openID(s.newest[0]), store.AnyPosition); err != nil { // a repeated send
			t.Fatal(err)
		}
		send(t, s, "after it")
		if got := receive(t, r); len(got) != 1 || got[0] != "after it" {
			t.Errorf("got %q", got)
		}
	})
}

func TestReceiver_ReturnsTheLabelOfAMissingLetter(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		cfg.MaxBlocks = 10
		s, r := NewSender(cfg), NewReceiver(cfg, Position{})
		long, label := strings.Repeat("letter ", 100), Label{Sender: "p01", First: 7, Last: 9}
		if err := s.Send(t.Context(), []byte(long), label); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, r); len(got) != 1 || got[0] != long {
			t.Fatalf("got %q, want the letter", got)
		}
		if err := s.Send(t.Context(), []byte(long), label); err != nil {
			t.Fatal(err)
		}
		names, err := cfg.Blobs.List(t.Context(), cfg.letters())
		if err != nil || len(names) != 1 {
			t.Fatalf("there are %q, %v; want one letter", names, err)
		}
		if err := cfg.Blobs.Remove(t.Context(), names[0]); err != nil {
			t.Fatal(err)
		}
		send(t, s, "after it")
		items, err := look(t, r)
		if err != nil || len(items) != 2 || items[0].Missing == nil || *items[0].Missing != label || string(items[1].Payload) != "after it" {
			t.Errorf("got %+v, %v; want the label and the mail after it", items, err)
		}
	})
}

func TestReceiver_DeletesLettersThatNoMailNames(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		for _, name := range []string{"p00/letter-0000000001-x", "p00/letter-0000000003-y"} {
			if err := cfg.Blobs.CreateBlob(t.Context(), name, []byte("its sender died")); err != nil {
				t.Fatal(err)
			}
		}
		s := NewSender(cfg)
		send(t, s, "1", "2", "3", "4", "5")
		receive(t, NewReceiver(cfg, Position{}))
		var names []string
		for _, b := range w.account.Blobs() {
			names = append(names, b.Name)
		}
		if got, want := fmt.Sprint(names), "[p00/letter-0000000003-y p00/mail-0000000002 p00/mail-0000000003]"; got != want {
			t.Errorf("left are %s, want %s", got, want)
		}
	})
}

func TestReceiver_ReportsThePlaceOfDamagedOrMissingMail(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		s := NewSender(cfg)
		send(t, s, "1")
		mail := append(s.chain.AppendFrame(nil, chain.Frame{Kind: kindMail, Payload: []byte("2")}), "junk"...)
		if _, _, err := s.chain.Blob(1).Append(t.Context(), mail, openID(s.newest[0]), store.AnyPosition); err != nil {
			t.Fatal(err)
		}
		r := NewReceiver(cfg, Position{})
		if items, err := look(t, r); err != nil || len(items) != 2 {
			t.Errorf("before the junk: %v, %v; want the mail", items, err)
		}
		junk := 2 * (chain.FrameHeaderSize + 1)
		again, err := look(t, r)
		if err != nil || len(again) != 2 {
			t.Errorf("at the junk: %v, %v; want the mail again", again, err)
		}
		for _, item := range again {
			if !item.MayBeDuplicate || item.End.Offset != uint64(junk) {
				t.Errorf("at the junk: %+v; want mail that may have been taken before, and the position of the junk", item)
			}
		}
		_, err = look(t, r)
		if d, ok := errors.AsType[*chain.DamageError](err); !ok || d.Blob != "p00/mail-0000000001" || d.Offset != int64(junk) {
			t.Errorf("junk: %v", err)
		}
		_, err = look(t, NewReceiver(cfg, Position{Blob: 2}))
		if d, ok := errors.AsType[*chain.DamageError](err); !ok || d.Blob != "p00/mail-0000000002" {
			t.Errorf("no blob: %v", err)
		}
		cfg.Hub = "other"
		if _, err = look(t, NewReceiver(cfg, Position{})); !errors.As(err, new(*chain.DamageError)) {
			t.Errorf("another hub's: %v", err)
		}
	})
}

// A repeated create request recreates a deleted blob. A sender that knows the old blob must not
// append to the new one, where no receiver looks.
func TestSender_DoesNotAppendToARecreatedBlob(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		frozen, s, r := NewSender(cfg), NewSender(cfg), NewReceiver(cfg, Position{})
		send(t, frozen, "1")
		nonce := frozen.newest[0].Nonce
		send(t, s, "2", "3", "4", "5", "6", "7")
		got := receive(t, r)
		if _, err := frozen.chain.Blob(1).Create(t.Context(), map[string]string{"nonce": nonce}); err != nil {
			t.Fatal(err)
		}
		send(t, frozen, "8")
		send(t, NewSender(cfg), "9")
		if got = append(got, receive(t, r)...); strings.Join(got, "") != "123456789" {
			t.Errorf("got %q", got)
		}
	})
}

// As above, with a sender that is frozen while it is about to open the first blob.
func TestSender_DoesNotOpenARecreatedBlob(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		p := chaintest.NewProcess(w.account.Worker("frozen"))
		p.Freeze = func(n int, after bool) time.Duration {
			if n == 4 && !after {
				return 30 * time.Second
			}
			return 0
		}
		late := w.config(p)
		late.MaxBlocks = 2
		var frozen sync.WaitGroup
		frozen.Go(func() { send(t, NewSender(late), "8") })
		time.Sleep(time.Second)
		first, _, err := cfg.chain().Find(t.Context(), 1)
		if err != nil || first.Leased {
			t.Fatal(first, err)
		}
		r := NewReceiver(cfg, Position{})
		send(t, NewSender(cfg), "1", "2", "3", "4", "5", "6", "7")
		got := receive(t, r)
		if _, err := cfg.chain().Blob(1).Create(t.Context(), map[string]string{"nonce": first.Nonce}); err != nil {
			t.Fatal(err)
		}
		frozen.Wait()
		if got = append(got, receive(t, r)...); strings.Join(got, "") != "12345678" {
			t.Errorf("got %q", got)
		}
	})
}

// A sender dies after it has opened the next blob and before it has closed the old one. No mail is
// lost.
func TestSender_UsesTheOldBlobUntilItIsClosed(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		died, r := NewSender(cfg), NewReceiver(cfg, Position{})
		send(t, died, "1")
		next, _, err := died.chain.Create(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := died.openBlob(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		cfg.MaxBlocks = 10
		send(t, NewSender(cfg), "2")
		if got := receive(t, r); strings.Join(got, "") != "12" {
			t.Errorf("got %q", got)
		}
	})
}

// A blob is closed while its sender repeats mail whose response was lost, and the next blob refuses the
// mail. The first blob may have it.
func TestSender_ARefusalAfterALostResponseIsUncertain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var loses, fails, refuses atomic.Bool
		isAppend := func(r azsim.Request) bool { return r.Worker == "sender" && r.Operation == "AppendBlock" }
		w := newWorld(t, azsim.Config{
			MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond,
			Decide: func(r azsim.Request) azsim.Fault {
				switch {
				case isAppend(r) && loses.CompareAndSwap(true, false):
					return azsim.FailAfter
				case isAppend(r) && fails.Load():
					return azsim.FailBefore
				}
				return azsim.None
			},
			Forbid: func(r azsim.Request) string {
				if isAppend(r) && refuses.Load() && strings.HasSuffix(r.Path, "2") {
					return "AuthorizationFailure"
				}
				return ""
			},
		})
		of := func(name string) Config {
			cfg := w.config(chaintest.NewProcess(w.account.Worker(name)))
			cfg.MaxBlocks = 3
			return cfg
		}
		sender, other := NewSender(of("sender")), NewSender(of("other"))
		send(t, sender, "1")
		loses.Store(true)
		fails.Store(true) // until the blob is closed
		refuses.Store(true)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			time.Sleep(5 * time.Millisecond)
			send(t, other, "3", "4", "5")
			fails.Store(false)
		}()
		err := sender.Send(t.Context(), []byte("2"), Label{})
		<-closed
		if !errors.Is(err, ErrUncertain) || store.StatusOf(err) != http.StatusForbidden {
			t.Errorf("Send: %v; want a refusal that is uncertain", err)
		}
		if got := receive(t, NewReceiver(of("receiver"), Position{})); !slices.Contains(got, "2") {
			t.Errorf("received %q; want the mail whose response was lost", got)
		}
		w.account.Wait()
	})
}

// The lease of a closed blob is broken, or a restore drops all leases. Mail still reaches the
// receiver.
func TestSender_DoesNotReopenABlobWithASuccessor(t *testing.T) {
	for before := 1; before <= 5; before++ {
		for name, disturb := range map[string]func(t *testing.T, w *world, cfg Config){
			"the lease of a closed blob is broken": func(t *testing.T, _ *world, cfg Config) {
				all, err := cfg.chain().List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range all[:len(all)-1] {
					if err := cfg.chain().Blob(l.Number).Break(t.Context(), l.ETag); err != nil {
						t.Fatal(err)
					}
				}
			},
			"the mailbox is restored without leases": func(_ *testing.T, w *world, _ Config) { w.account.Restore("") },
			"the mailbox is restored without leases and end frames": func(_ *testing.T, w *world, _ Config) {
				w.loseEnds()
				w.account.Restore("")
			},
		} {
			t.Run(fmt.Sprintf("%s after %d", name, before), func(t *testing.T) {
				simulated(t, func(t *testing.T, w *world, cfg Config) {
					known, r := NewSender(cfg), NewReceiver(cfg, Position{})
					var want []string
					for n := range before {
						want = append(want, fmt.Sprint("before ", n))
						send(t, known, want[n])
					}
					got := receive(t, r)
					disturb(t, w, cfg)
					for n, s := range []*Sender{NewSender(cfg), known, NewSender(cfg)} {
						mail := fmt.Sprint("after ", n)
						want = append(want, mail)
						send(t, s, mail)
					}
					if got = append(got, receive(t, r)...); !slices.Equal(got, want) {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// An older version appended mail to a closed blob. The receiver logs it: immediately if the mail is
// there when the receiver leaves the blob, otherwise before it deletes the blob.
func TestReceiver_ReportsMailBehindAnEndFrame(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late: %v", late), func(t *testing.T) {
			simulated(t, func(t *testing.T, _ *world, cfg Config) {
				var logged strings.Builder
				cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
				s, r := NewSender(cfg), NewReceiver(cfg, Position{})
				send(t, s, "1", "2", "3")
				lose := func() {
					l, _, err := cfg.chain().Find(t.Context(), 1)
					if err == nil {
						_, _, err = s.append(t.Context(), l, closedID(l), chain.Frame{Kind: kindMail, Payload: []byte("lost")})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if !late {
					lose()
				}
				receive(t, r)
				if late {
					lose()
				}
				send(t, s, "4", "5", "6")
				receive(t, r)
				if got := strings.Count(logged.String(), "mail is lost"); got != 1 || !strings.Contains(logged.String(), "blob=p00/mail-0000000001 offset=65 mails=1") {
					t.Errorf("logged\n%s\nwant one loss in the first blob", logged.String())
				}
			})
		})
	}
}
