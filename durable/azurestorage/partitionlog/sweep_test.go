package partitionlog_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
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

// A paused machine does not notice that its lease has ended. Its owner deletes nothing then.
func TestOwner_DeletesNoFilesUnlessTheLeaseCanBeRenewed(t *testing.T) {
	inBubble(t, func(s *simulated) {
		w := s.account.Worker("w")
		h := s.openBy(&endsLeases{w, s.account}, partitionlog.Config{WorkerID: "w"})
		const left = "base-0000000001-left"
		before, after, err := h.Sweep(s.Context(), left, false)
		if err == nil || len(after) > 0 || !slices.Contains(before, "p00/"+left) {
			s.Errorf("before %q, after %q, %v; want an error", before, after, err)
		}
		if trace := s.account.Trace(); strings.Contains(trace, "DeleteBlob") {
			s.Errorf("a file was deleted:\n%s", trace)
		}
		_ = h.Close() // the partition is lost
	})
}

// endsLeases carries requests to an account that ends all leases when the files of a base are
// listed.
type endsLeases struct {
	policy.Transporter
	account *azsim.Account
}

func (e *endsLeases) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "base-") {
		e.account.Restore("/log-")
	}
	return e.Transporter.Do(r)
}
