package embedded_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Whatever damage the hub's file has, the process survives, and a read returns the written data or
// an error.
func TestHub_SurvivesDamageOfAnyKind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	x := &bench{tb: t, hub: open(t, path, impatient), ctx: t.Context(), done: make(map[string]chan struct{})}
	stop := run(t, x.hub)
	for i := range 30 {
		id := fmt.Sprintf("instance %d", i)
		if err := startInstance(t, x.hub, id); err != nil {
			t.Fatal(err)
		}
		item, err := x.hub.NextOrchestration(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.episodes(item, i%4) // some end, others wait for an activity
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	sound := make(map[string]int)
	for i := range 30 {
		id := fmt.Sprintf("instance %d", i)
		past, err := x.hub.History(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		sound[id] = len(past)
	}
	if err := x.hub.Close(); err != nil {
		t.Fatal(err)
	}
	content := read(t, path)

	refused := 0
	for seed := range uint64(testshare.Amount(150, 25)) {
		r := rand.New(rand.NewPCG(seed, 7))
		harmed := append([]byte(nil), content...)
		for range 1 << r.IntN(8) {
			harmed[r.IntN(len(harmed))] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 { // a misplaced page
			from, to := r.IntN(len(harmed)/4096), r.IntN(len(harmed)/4096)
			copy(harmed[to*4096:to*4096+4096], content[from*4096:])
		}
		path := filepath.Join(t.TempDir(), "hub.db")
		write(t, path, harmed)
		hub, err := embedded.Open(path, impatient)
		if err != nil {
			refused++
			if !errors.As(err, new(*embedded.CorruptError)) && !errors.As(err, new(*embedded.FormatError)) {
				t.Errorf("seed %d: Open returned %v, want one of our errors", seed, err)
			}
			continue
		}
		use(t, seed, hub, sound)
	}
	if refused == 0 {
		t.Error("no file was refused")
	}
}

// use reads all instances of a hub that may be damaged, and continues to work with it.
func use(t *testing.T, seed uint64, hub *embedded.Hub, sound map[string]int) {
	t.Helper()
	for id, want := range sound {
		past, err := hub.History(t.Context(), id)
		if err == nil && len(past) != want {
			t.Errorf("seed %d: %s has %d events, want %d", seed, id, len(past), want)
		}
		if _, err := hub.Instance(t.Context(), id, provider.Fetch{Input: true, Output: true}); err != nil {
			continue
		}
	}
	if _, err := hub.Instances(t.Context(), provider.Query{}); err != nil && !errors.As(err, new(*embedded.CorruptError)) {
		t.Errorf("seed %d: Instances returned %v, want a *CorruptError", seed, err)
	}
	stop := run(t, hub)
	for i := range 20 {
		err := startInstance(t, hub, fmt.Sprintf("new %d", i))
		if err != nil && !errors.As(err, new(*embedded.CorruptError)) {
			t.Errorf("seed %d: StartInstance returned %v, want a *CorruptError", seed, err)
		}
		m := provider.TaskMessage{Event: &history.EventRaised{Name: "E"}, Target: history.OrchestrationInstance{InstanceID: "instance 1"}}
		if err := hub.Send(t.Context(), m); err != nil && !errors.As(err, new(*embedded.CorruptError)) {
			t.Errorf("seed %d: Send returned %v, want a *CorruptError", seed, err)
		}
	}
	stop()
	_ = hub.Close() // writes the database, which may fail
}
