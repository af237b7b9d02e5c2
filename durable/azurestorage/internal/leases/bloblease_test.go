package leases

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
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
