package console

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/google/go-cmp/cmp"
)

func TestHubNow_WarnsOfPartitionsWithoutAnOwner(t *testing.T) {
	t.Parallel()
	now := hubNow{Load: &management.ScalePayload{ControlQueueLengths: []int{4, 0, 7, 1}, ControlQueueOwners: []string{"w1", "", "", "w2"}}}
	if d := cmp.Diff([]string{"7 messages wait in partition 2, which has no owner."}, now.Warnings()); d != "" {
		t.Errorf("the warnings (-want +got): %s", d)
	}
	for name, now := range map[string]hubNow{
		"no load": {}, "no owners": {Load: &management.ScalePayload{ControlQueueLengths: []int{4}}},
	} {
		if got := now.Warnings(); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}
