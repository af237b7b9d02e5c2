package partitionlog_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/google/go-cmp/cmp"
)

func TestOwner_DeletesFilesThatItsBaseDoesNotNeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := simulatedHub(t)
		h := hub.Provider.(*partitionlog.Hub)
		const left = "base-0000000001-left"
		before, after, err := h.Sweep(t.Context(), left, false)
		if err != nil || len(before) != 2 || !slices.Contains(before, "p00/"+left) {
			t.Fatalf("before: %q, %v", before, err)
		}
		want := slices.DeleteFunc(before, func(name string) bool { return name == "p00/"+left })
		if diff := cmp.Diff(want, after); diff != "" {
			t.Errorf("after: (-want +got)\n%s", diff)
		}
		if before, after, err = h.Sweep(t.Context(), left, true); err != nil || !slices.Contains(before, "p00/"+left) || !slices.Equal(before, after) {
			t.Errorf("after it was lost: %q, then %q, %v; want that nothing is deleted", before, after, err)
		}
	})
}
