package leases

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
)

// The recordings have every lease blob that .NET's engine read.
func TestLeaseBlobs_RoundTripAsRecorded(t *testing.T) {
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

// again decodes text into v and encodes it again.
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
func TestAppLeaseID_MatchesDotNet(t *testing.T) {
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

// leasesOf returns one lease for each owner in owners. "." stands for a lease without an owner, and "-"
// for an expired lease with an owner.
func leasesOf(owners string) []BlobLease {
	var all []BlobLease
	for i, o := range strings.Fields(strings.ReplaceAll(owners, ".", " . ")) {
		l := BlobLease{Partition: fmt.Sprintf("q%d", i), Owner: o, Leased: true}
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
func TestPlanLeases_DecidesAsLeaseCollectionBalancer(t *testing.T) {
	for _, c := range []struct {
		name, owners, want string
		keeps              bool // without stealing
	}{
		{name: "the first worker takes all", owners: "....", want: "q0 q1 q2 q3"},
		{name: "expired leases of a crashed worker count as free", owners: "- - - -", want: "q0 q1 q2 q3"},
		{name: "the second worker takes its share of the free leases", owners: "a a . .", want: "q2 q3"},
		{name: "no more than its share", owners: "a . . .", want: "q1 q2"},
		{name: "without free leases it takes one over", owners: "a a a a", want: "q0"},
		{name: "it takes over from the worker with the most leases", owners: "a b b b", want: "q1"},
		{name: "it takes over one lease at a time", owners: "a a a a a a", want: "q0"},
		{name: "two of three leases are a fair share", owners: "a me a", want: ""},
		{name: "a fair share is not changed", owners: "a a me me", want: ""},
		{name: "more workers than partitions", owners: "a b", want: ""},
		{name: "one lease less than the others is a fair share", owners: "a a me", want: ""},
		{name: "worker names ignore case", owners: "ME ME a a", want: ""},
		{name: "without stealing it takes all free leases", owners: ". a . -", want: "q0 q2 q3", keeps: true},
		{name: "without stealing it takes no owned lease", owners: "a a a a", want: "", keeps: true},
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
