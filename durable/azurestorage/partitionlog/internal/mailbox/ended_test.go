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

// Each mail comes from another process. The senders append one end frame to a full blob in all, also
// if the blob has room for one more only. They send past a blob that is full of end frames.
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
