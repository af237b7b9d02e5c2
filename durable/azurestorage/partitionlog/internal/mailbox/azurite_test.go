package mailbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
)

// onAzurite returns the configuration of a mailbox in a new container on Azurite, and a counter of
// its requests.
func onAzurite(t *testing.T) (Config, *azuritetest.Counter) {
	t.Helper()
	c, counter := chaintest.Azurite(t)
	return Config{Blobs: c, Hub: "hub", Prefix: "p00/"}, counter
}

func TestMailbox_DeliversMailInOrderAcrossBlobs(t *testing.T) {
	cfg, _ := onAzurite(t)
	cfg.MaxBlocks, cfg.MaxBlock = 3, 200
	r := NewReceiver(cfg, Position{})
	if items, err := look(t, r); err != nil || len(items) > 0 {
		t.Fatalf("receiving from a missing mailbox: %v, %v", items, err)
	}
	senders := []*Sender{NewSender(cfg), NewSender(cfg)}
	var got []string
	var after Position
	for n := range 20 {
		text := fmt.Sprintf("mail %d", n)
		if n%7 == 3 {
			text += strings.Repeat(" is long", 100)
		}
		if err := senders[n%2].Send(t.Context(), []byte(text), Label{}); err != nil {
			t.Fatal(err)
		}
		if n == 9 || n == 15 { // another owner continues
			items, err := look(t, r)
			if err != nil || len(items) == 0 {
				t.Fatal(items, err)
			}
			for _, item := range items {
				got = append(got, string(item.Payload[:min(len(item.Payload), 10)]))
				after = item.End
			}
			if err := r.DeleteUpTo(t.Context(), after); err != nil {
				t.Fatal(err)
			}
			r = NewReceiver(cfg, after)
		}
	}
	for {
		items, err := look(t, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			break
		}
		for _, item := range items {
			got = append(got, string(item.Payload[:min(len(item.Payload), 10)]))
			after = item.End
		}
	}
	for n := range 20 {
		if want := fmt.Sprintf("mail %d", n); len(got) <= n || !strings.HasPrefix(got[n]+" ", want+" ") {
			t.Fatalf("got %q", got)
		}
	}
	if len(got) != 20 {
		t.Errorf("got %q", got)
	}
	if err := r.DeleteUpTo(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	left, _, err := cfg.Blobs.ListInfo(t.Context(), cfg.Prefix)
	if err != nil || len(left) > 2 {
		t.Errorf("remaining blobs: %v, %v; want at most 2", left, err)
	}
}

func TestMailbox_MakesTheDocumentedNumberOfRequests(t *testing.T) {
	cfg, counter := onAzurite(t)
	cfg.MaxBlock = 200
	cfg.Confirm = chaintest.Identify(t, cfg.Blobs, "hub")
	cost := func(what string, want int, f func() error) {
		t.Helper()
		counter.Reset()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if got := counter.Total(nil); got != want {
			t.Errorf("%s: %d requests, want %d:\n%s", what, got, want, counter)
		}
	}
	s, r := NewSender(cfg), NewReceiver(cfg, Position{})
	send := func() error { return s.Send(t.Context(), []byte("mail"), Label{}) }
	next := func() error { _, err := look(t, r); return err }
	cost("creating a mailbox", 6, send)
	cost("sending mail", 1, send)
	cost("sending a letter", 2, func() error { return s.Send(t.Context(), make([]byte, 1000), Label{}) })
	cost("receiving mail and a letter", 2, next)
	cost("receiving nothing for the first time", 2, next)
	cost("receiving nothing", 1, next)
	s = NewSender(cfg)
	cost("the first mail of another sender", 2, send)
}
