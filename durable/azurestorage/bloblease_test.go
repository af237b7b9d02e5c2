package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Every text that .NET's engine read from a blob of leases.
func TestLeaseBlobs_AreReadAndWrittenAsRecorded(t *testing.T) {
	for line := range strings.Lines(recordings.LeaseBlobs(t)) {
		want := strings.TrimSpace(line)
		var got []byte
		switch {
		case strings.Contains(want, `"PartitionId"`):
			l, err := parseBlobLease([]byte(want))
			if err != nil {
				t.Errorf("%s: %v", want, err)
			}
			got = l.text()
		case strings.Contains(want, `"OwnerId"`):
			got = again(t, want, &appLeaseInfo{})
		default:
			got = again(t, want, &taskHubInfo{})
		}
		if string(got) != want {
			t.Errorf("wrote %s, want %s", got, want)
		}
	}
}

// again returns what was decoded into v as it is encoded.
func again(t *testing.T, text string, v any) []byte {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return raw
}

// DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs, constructor.
func TestAppLeaseID_IsThatOfDotnet(t *testing.T) {
	for app, want := range map[string]string{
		"":              "811c9dc5-0000-0000-0000-000000000000",
		"MyFunctionApp": "dda8b646-0000-0000-0000-000000000000",
		"myfunctionapp": "87ffd7a6-0000-0000-0000-000000000000",
		"my-func-app":   "32213f66-0000-0000-0000-000000000000",
		"myapp":         "1312a8a6-0000-0000-0000-000000000000",
	} {
		if got := appLeaseID(app); got != want {
			t.Errorf("the lease of app %q is %s, want %s", app, got, want)
		}
	}
}

// leasesOf returns leases of owners, one each; "" for nobody's, and "-" for one
// with an owner whose lease has run out.
func leasesOf(owners string) []blobLease {
	var all []blobLease
	for i, o := range strings.Fields(strings.ReplaceAll(owners, ".", " . ")) {
		l := blobLease{Partition: fmt.Sprintf("q%d", i), Owner: o, Leased: true}
		switch o {
		case ".":
			l.Owner, l.Leased = "", false
		case "-":
			l.Owner, l.Leased = "dead", false
		}
		all = append(all, l)
	}
	return all
}

// DurableTask.AzureStorage/Partitioning/LeaseCollectionBalancer.cs, TakeLeasesAsync.
func TestPlanLeases_TakesWhatTheBalancerOfDotnetTakes(t *testing.T) {
	for _, c := range []struct {
		name, owners, want string
		keeps              bool // no stealing
	}{
		{name: "the first worker takes all", owners: "....", want: "q0 q1 q2 q3"},
		{name: "and what is left of a dead one", owners: "- - - -", want: "q0 q1 q2 q3"},
		{name: "the second takes its share of what is free", owners: "a a . .", want: "q2 q3"},
		{name: "and no more", owners: "a . . .", want: "q1 q2"},
		{name: "with none free it takes one over", owners: "a a a a", want: "q0"},
		{name: "of the one that has most", owners: "a b b b", want: "q1"},
		{name: "one at a time", owners: "a a a a a a", want: "q0"},
		{name: "two of three are fair beside one", owners: "a me a", want: ""},
		{name: "a fair share is left alone", owners: "a a me me", want: ""},
		{name: "more workers than partitions", owners: "a b", want: ""},
		{name: "more partitions than workers have", owners: "a a me", want: ""},
		{name: "case does not matter in names", owners: "ME ME a a", want: ""},
		{name: "without stealing all that is free", owners: ". a . -", want: "q0 q2 q3", keeps: true},
		{name: "without stealing nothing else", owners: "a a a a", want: "", keeps: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, l := range planLeases(leasesOf(c.owners), "me", !c.keeps) {
				got = append(got, l.Partition)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("takes %q, want %q", got, c.want)
			}
		})
	}
}

func TestConfig_RefusesLeasesThatBlobsCannotHave(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{PartitionManager: SafeBlobLeases, LeaseInterval: 14 * time.Second, LeaseAcquireInterval: time.Second}, "LeaseInterval is 14s; want 15s to 1m0s"},
		{Config{PartitionManager: LegacyBlobLeases, LeaseInterval: 2 * time.Minute}, "LeaseInterval is 2m0s; want 15s to 1m0s"},
		{Config{PartitionManager: 7}, "PartitionManager is PartitionManager(7)"},
		{Config{AppLease: AppLease{Interval: time.Second}}, "AppLease.Interval is 1s; want 15s to 1m0s"},
		{Config{AppLease: AppLease{RenewInterval: time.Hour}}, "AppLease.RenewInterval is 1h0m0s; want less than Interval, which is 1m0s"},
		{Config{AppLease: AppLease{AcquireInterval: 48 * time.Hour}}, "AppLease.AcquireInterval is 48h0m0s"},
	} {
		if err := c.cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate returned %v, want %q", err, c.want)
		}
	}
}

// On a real emulator; package simulated has what takes time.
func TestBlobPartitions_AreLeasedWorkedOnAndReleased(t *testing.T) {
	t.Parallel()
	for _, m := range []PartitionManager{SafeBlobLeases, LegacyBlobLeases} {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			cfg.PartitionManager, cfg.PartitionCount, cfg.WorkerID = m, 2, "one"
			cfg.LeaseInterval, cfg.LeaseAcquireInterval = 15*time.Second, 500*time.Millisecond
			first := openHub(t, cfg)
			cfg.WorkerID = "two"
			second := openHub(t, cfg)
			stopFirst := runHub(t, first)
			stopSecond := runHub(t, second)
			reads := func(h *TaskHub) (n int) {
				for _, p := range h.partitions {
					if p.isListening() {
						n++
					}
				}
				return n
			}
			eventually(t, "each has one", time.Minute, func() bool { return reads(first) == 1 && reads(second) == 1 })
			for i := range 6 {
				mustStart(t, first, fmt.Sprintf("i%d", i), fmt.Sprintf("e%d", i), `1`)
			}
			items := itemsOf(within(t, time.Minute), first, second)
			for range 6 {
				item, ok := <-items
				if !ok {
					t.Fatal("not all instances were handed out")
				}
				if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance}); err != nil {
					t.Error(err)
				}
				if err := item.Session.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			stopFirst()
			eventually(t, "the second has both", time.Minute, func() bool { return reads(second) == 2 })
			stopSecond()
			for _, folder := range []string{defaultLeases, intentLeases, ownershipLeases} {
				left, err := second.leaseSet(folder).list(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range left {
					if l.Leased || l.Owner != "" || l.Epoch == 0 {
						t.Errorf("%s/%s is left as %+v", folder, l.Partition, l)
					}
				}
			}
		})
	}
}

// itemsOf returns what hubs hand out until ctx ends.
func itemsOf(ctx context.Context, hubs ...*TaskHub) <-chan *provider.OrchestrationWorkItem {
	items := make(chan *provider.OrchestrationWorkItem)
	var fetching sync.WaitGroup
	for _, h := range hubs {
		fetching.Go(func() {
			for {
				item, err := h.NextOrchestration(ctx)
				if err != nil {
					return
				}
				items <- item
			}
		})
	}
	go func() {
		fetching.Wait()
		close(items)
	}()
	return items
}
