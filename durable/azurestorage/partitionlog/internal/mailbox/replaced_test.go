package mailbox

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
)

// The test freezes a sender at each of its requests while its hub is deleted and created again.
// When the sender wakes, it sends nothing, and the mailbox of the new hub stays readable.
func TestSender_OfADeletedHubSendsNothingIntoTheNewOne(t *testing.T) {
	config := func(c *store.Container, hub string) Config {
		return Config{Blobs: c, Hub: hub, Confirm: chaintest.Confirm(c, hub), Prefix: "p00/", MaxBlocks: 3, MaxBlock: 100}
	}
	var receiver *Receiver
	old := func(r *chaintest.Replacement) {
		receiver = NewReceiver(config(r.New, "new"), Position{})
		s := NewSender(config(r.Old, "old"))
		for n := range 12 {
			late := r.IsDone()
			err := s.Send(r.Context(), fmt.Append(nil, "old", n), Label{})
			if late && !errors.Is(err, chaintest.ErrReplaced) {
				r.Errorf("mail %d of a sender of the deleted hub: %v; want %v", n, err, chaintest.ErrReplaced)
			}
		}
	}
	replacing := func(r *chaintest.Replacement) {
		s := NewSender(config(r.New, "new"))
		var want []string
		for n := range 8 {
			mail := fmt.Sprint("new", n)
			if err := s.Send(r.Context(), []byte(mail), Label{}); err != nil {
				r.Error(err)
			}
			want = append(want, mail)
		}
		if got := receive(r.T, receiver); !slices.Equal(got, want) {
			r.Errorf("received %q, want %q", got, want)
		}
	}
	chaintest.EachReplacement(t, 20, old, replacing)
}

// Two senders of a deleted hub have created blobs in the new hub. A third sender must not mistake
// them for blobs that have lost their leases. The new hub uses the names of both.
func TestSender_OfADeletedHubClosesNoBlobOfTheNewOne(t *testing.T) {
	simulated(t, func(t *testing.T, w *world, cfg Config) {
		old := cfg
		cfg.Confirm = chaintest.Identify(t, cfg.Blobs, cfg.Hub)
		old.Hub = "old"
		old.Confirm = chaintest.Confirm(cfg.Blobs, old.Hub)
		left := old.chain()
		for n := range uint64(2) {
			if _, _, err := left.Create(t.Context(), n+1); err != nil {
				t.Fatal(err)
			}
		}
		if err := NewSender(old).Send(t.Context(), []byte("old"), Label{}); !errors.Is(err, chaintest.ErrReplaced) {
			t.Errorf("mail of the deleted hub: %v; want %v", err, chaintest.ErrReplaced)
		}
		send(t, NewSender(cfg), "1", "2", "3", "4", "5")
		if got := fmt.Sprint(receive(t, NewReceiver(cfg, Position{}))); got != "[1 2 3 4 5]" {
			t.Errorf("received %s, want 1 to 5", got)
		}
	})
}
