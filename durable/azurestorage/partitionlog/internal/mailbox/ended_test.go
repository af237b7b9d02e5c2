package mailbox

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// Each mail comes from another process. All senders together append one end frame to a full blob. If the blob is
// full of end frames, they send to the next blob.
func TestSender_AppendsNoEndFrameToAnEndedBlob(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("the blob is full of end frames: %v", full), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond, MaxBlocks: 9})
				cfg := w.config(chaintest.NewProcess(w.account.Worker("process")))
				var want []string
				for n := range 30 {
					before := len(w.account.Log())
					want = append(want, fmt.Sprint("mail ", n))
					send(t, NewSender(cfg), want[n])
					// List, read of the older blob, append.
					if got := len(w.account.Log()) - before; n%cfg.MaxBlocks == 1 && n > cfg.MaxBlocks && got != 3 {
						t.Errorf("mail %d took %d requests, want 3:\n%s", n, got, w.account.Trace())
					}
					if full && n == cfg.MaxBlocks {
						s := NewSender(cfg)
						l, _, err := s.chain.Find(t.Context(), 1)
						for err == nil {
							_, _, err = s.append(t.Context(), l, closedID(l), chain.Frame{Kind: kindEnd})
						}
					}
				}
				if got := receive(t, NewReceiver(cfg, Position{})); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				w.account.Wait()
			})
		})
	}
}

// A mailbox blob with successors loses its end frame. The receiver ends the blob and continues with the
// next one. It receives the mail of a sender that could still append to the first blob.
func TestReceiver_EndsABlobThatLostItsEndFrame(t *testing.T) {
	for name, lease := range map[string]func(t *testing.T, w *world, cfg Config, l chain.Link){
		"the blob is closed":  func(*testing.T, *world, Config, chain.Link) {},
		"no blob has a lease": func(_ *testing.T, w *world, _ Config, _ chain.Link) { w.account.Restore("") },
		"the blob is open": func(t *testing.T, _ *world, cfg Config, l chain.Link) {
			if err := cfg.chain().Blob(l.Number).Change(t.Context(), closedID(l), openID(l)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for blobs := 2; blobs <= 4; blobs++ {
			t.Run(fmt.Sprintf("%s, %d blobs", name, blobs), func(t *testing.T) {
				simulated(t, func(t *testing.T, w *world, cfg Config) {
					early, s := NewSender(cfg), NewSender(cfg)
					want := []string{"early"}
					send(t, early, "early")
					for n := range 2*blobs - 3 {
						want = append(want, fmt.Sprint("mail ", n))
						send(t, s, want[n+1])
					}
					all, err := cfg.chain().List(t.Context())
					if err != nil || len(all) != blobs {
						t.Fatalf("there are the blobs %v, %v; want %d", all, err, blobs)
					}
					if !w.account.Shorten("hub-log", cfg.chain().Name(1), int(all[0].Size)-chain.FrameHeaderSize) {
						t.Fatal("the blob was not shortened")
					}
					lease(t, w, cfg, all[0])
					r := NewReceiver(cfg, Position{})
					got := receive(t, r)
					for n, s := range []*Sender{s, early} {
						late := fmt.Sprint("late ", n)
						want = append(want, late)
						send(t, s, late)
						if got = append(got, receive(t, r)...); !slices.Equal(got, want) {
							t.Fatalf("got %q, want %q", got, want)
						}
					}
				})
			})
		}
	}
}
