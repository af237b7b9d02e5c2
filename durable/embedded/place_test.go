package embedded_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
)

func TestPlace_CountsTheMessagesBeforeAnInstanceThatHasNotStarted(t *testing.T) {
	t.Parallel()
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Relaxed: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := durable.NewClient(hub, durable.NewRegistry())
	for _, id := range []durable.InstanceID{"first", "second", "third"} {
		if _, err := client.StartByName(t.Context(), "Nobody", nil, id); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[durable.InstanceID]string{
		"first": "waits for a worker to start it: the hub has 0 messages ahead of it; owner: none",
		"third": "waits for a worker to start it: the hub has 2 messages ahead of it; owner: none",
	} {
		w, err := client.Why(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Reasons[0].String(); got != want {
			t.Errorf("%s %s, want %s", id, got, want)
		}
	}
}

func TestUsage_CountsTheWritesSinceTheFileWasOpened(t *testing.T) {
	t.Parallel()
	path, cfg := filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Relaxed: true, Logger: slog.New(slog.DiscardHandler)}
	for opened := range int64(2) {
		hub, err := embedded.Open(path, cfg)
		if err != nil {
			t.Fatal(err)
		}
		before := hub.Usage()[0]
		client := durable.NewClient(hub, durable.NewRegistry())
		for n := range 3 {
			if _, err := client.StartByName(t.Context(), "Nobody", nil, durable.InstanceID(fmt.Sprint("i", opened, n))); err != nil {
				t.Fatal(err)
			}
		}
		after := hub.Usage()[0]
		if before.Part != "file" || before.Requests > 1 || after.Requests-before.Requests != 3 || after.Errors != -1 {
			t.Errorf("Usage: %+v, after three starts %+v", before, after)
		}
		if err := hub.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
