package mailbox

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
)

// A sender is frozen at each of its requests while its hub is deleted and created again. When
// it wakes it sends nothing, and the mailbox of the new hub stays readable.
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
			err := s.Send(r.Context(), fmt.Append(nil, "old", n))
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
			if err := s.Send(r.Context(), []byte(mail)); err != nil {
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
