package handover_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A tag that is too long for a column is stored in a blob of the history. .NET tests only that such
// an instance completes (DurableTask.AzureStorage.Tests, LargeOrchestrationTags), not that the tag
// is kept.
func TestTags_TooLongForAColumnAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, simulated(t, 1, 0))
		h.writeExpiredLease(t)
		client := scenario{}.work(t, h)
		large := strings.Repeat("x", 64<<10)
		i, err := durable.Start(t.Context(), client, WaitEv, "", durable.InstanceID("tagged"), durable.Tags{"large": large})
		if err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			s, err := i.Status(t.Context(), durable.Fetch{})
			if err != nil || s.Tags["large"] != large {
				t.Errorf("%s: %d tags, the large one with %d bytes: %v", when, len(s.Tags), len(s.Tags["large"]), err)
			}
		}
		check("before it runs")
		for deadline := time.Now().Add(h.patience); ; time.Sleep(h.pause) {
			events, err := i.History(t.Context())
			if err == nil && len(events) > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the instance has not started: %v", err)
			}
		}
		check("while it waits")
		if err := greet.Raise(t.Context(), client, i.ID, "all"); err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "ev:greet=all" {
			t.Errorf("got %q, %v", out, err)
		}
		check("at the end")
	})
}
