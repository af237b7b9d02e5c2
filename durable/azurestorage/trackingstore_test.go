package azurestorage

import (
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// tablesOf returns the names of the tables of h's account that start with a prefix. It replaces the
// first prefix by "hub" and the second one by "prefix".
func tablesOf(t *testing.T, h *TaskHub, prefixes ...string) []string {
	t.Helper()
	var names []string
	for pager := h.services.Tables.NewListTablesPager(nil); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range page.Tables {
			for i, prefix := range prefixes {
				if rest, ok := strings.CutPrefix(store.Value(table.Name), prefix); ok {
					names = append(names, []string{"hub", "prefix"}[i]+" "+rest)
				}
			}
		}
	}
	return names
}

func TestTrackingStore_RunsAHubInTwoAccounts(t *testing.T) {
	t.Parallel()
	connection := azuritetest.Start(t)
	first, err := ParseConnectionString(connection)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ParseConnectionString(azuritetest.SecondAccount(connection))
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t)
	cfg.TrackingStoreNamePrefix = "Of" + cfg.TaskHub
	h, err := Open(first.WithTrackingStore(second), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := runHub(t, h)
	mustStart(t, h, "hello", "e", `"`+strings.Repeat("in", 40_000)+`"`)
	runHello(t, h, "Tokyo", "Seattle", "London")
	state, err := h.Instance(t.Context(), "hello", provider.Fetch{Input: true})
	if err != nil || state.Status != history.Completed || len(store.Value(state.Input)) != 80_002 {
		t.Fatalf("the instance is %+v, %v", state, err)
	}
	stop()

	alone, err := Open(first, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := tablesOf(t, alone, cfg.TaskHub, cfg.TrackingStoreNamePrefix); got != nil {
		t.Errorf("the account of the queues has the tables %q, want none", got)
	}
	want := []string{"prefix History", "prefix Instances", "hub Partitions"}
	if diff := cmp.Diff(want, tablesOf(t, h, cfg.TaskHub, cfg.TrackingStoreNamePrefix)); diff != "" {
		t.Errorf("tables in the second account (-want +got):\n%s", diff)
	}
	var blobs []string
	for pager := h.largeMessages.Client.NewListBlobsFlatPager(nil); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Segment.BlobItems {
			blobs = append(blobs, store.Value(b.Name))
		}
	}
	if len(blobs) == 0 {
		t.Error("the second account has no large payload")
	}
}

func TestTrackingStore_NeedsAConnection(t *testing.T) {
	first, err := ParseConnectionString("UseDevelopmentStorage=true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(first.WithTrackingStore(Connection{}), Config{}); err == nil || !strings.Contains(err.Error(), "tracking store") {
		t.Errorf("error %v, want one about the tracking store", err)
	}
}
