package partitionlog

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// From any initial distribution, workers that follow their plans own all partitions evenly after a
// few rounds. Then nothing changes any more.
func TestPlan_BalancesAllPartitionsAndThenStops(t *testing.T) {
	t.Parallel()
	for partitions := 1; partitions <= 64; partitions += 7 {
		for n := 1; n <= 9; n++ {
			workers := map[string][]int{}
			for i := range n {
				workers[fmt.Sprint("w", i)] = nil
			}
			for i := range partitions { // one worker has most of them
				workers["w0"] = append(workers["w0"], i)
			}
			for range 3 {
				for _, me := range slices.Sorted(maps.Keys(workers)) {
					release, want, from := plan(me, workers, nil, partitions)
					if release > 0 && want > 0 || want > 0 && me == "w0" {
						t.Errorf("%d partitions, %d workers: %s releases %d and acquires %d", partitions, n, me, release, want)
					}
					workers[me] = slices.Concat(workers[me][:len(workers[me])-release], from[:min(want, len(from))])
				}
			}
			var all []int
			for me, mine := range workers {
				if len(mine) < partitions/n || len(mine) > partitions/n+1 {
					t.Errorf("%d partitions, %d workers: %s owns %d", partitions, n, me, len(mine))
				}
				if release, want, _ := plan(me, workers, nil, partitions); release+want != 0 {
					t.Errorf("%d partitions, %d workers: %s still changes", partitions, n, me)
				}
				all = append(all, mine...)
			}
			slices.Sort(all)
			if len(slices.Compact(all)) != partitions {
				t.Errorf("%d partitions, %d workers: owned are %v", partitions, n, all)
			}
		}
	}
}

// An unclaimed partition may still have a lease, so the plan offers more partitions than wanted.
func TestPlan_OffersAllUnclaimedPartitions(t *testing.T) {
	t.Parallel()
	release, want, from := plan("b", map[string][]int{"a": {0, 1}, "c": {9, -1}}, nil, 6)
	if release != 0 || want != 2 || !cmp.Equal(from, []int{2, 3, 4, 5}) {
		t.Errorf("got %d, %d, %v; want to acquire 2 of 2, 3, 4 and 5", release, want, from)
	}
}

func TestPlan_GivesYoungWorkersOnlyFreePartitions(t *testing.T) {
	t.Parallel()
	young := map[string]bool{"a": true, "b": true}
	all := []int{0, 1, 2, 3}
	for _, tt := range []struct {
		what, me      string
		workers       map[string][]int
		release, want int
		from          []int
	}{
		{"a worker keeps its partitions beside young ones", "old", map[string][]int{"a": nil, "b": nil, "old": all}, 0, 0, nil},
		{"it acquires partitions without an owner", "old", map[string][]int{"a": {0}, "old": {1}}, 0, 3, []int{2, 3}},
		{"a young worker acquires them, too", "a", map[string][]int{"a": nil, "old": {0, 1}}, 0, 2, []int{2, 3}},
		{"young workers share", "a", map[string][]int{"a": all, "b": nil}, 2, 0, nil},
		{"workers share with an old worker", "old", map[string][]int{"old": all, "older": nil}, 2, 0, nil},
	} {
		release, want, from := plan(tt.me, tt.workers, young, 4)
		if release != tt.release || want != tt.want || !cmp.Equal(from, tt.from) {
			t.Errorf("%s: got %d, %d, %v; want %d, %d, %v", tt.what, release, want, from, tt.release, tt.want, tt.from)
		}
	}
}

func TestMergePages_EndsAtTheFirstContinuation(t *testing.T) {
	t.Parallel()
	page := func(next string, ids ...string) *provider.Page {
		p := &provider.Page{}
		if next != "" {
			p.Continuation = provider.EncodeContinuation(next)
		}
		for _, id := range ids {
			p.Instances = append(p.Instances, &provider.InstanceState{Instance: history.OrchestrationInstance{InstanceID: id}})
		}
		return p
	}
	unreadable := page("", "b")
	unreadable.Unreadable = []provider.UnreadableInstance{{InstanceID: "bb"}, {InstanceID: "z"}}
	for _, tt := range []struct {
		pages      []*provider.Page
		size       int
		want, next string
		unreadable int
	}{
		{[]*provider.Page{nil, page("")}, 10, "", "", 0},
		{[]*provider.Page{page("", "a", "d"), page("", "b", "c")}, 10, "abcd", "", 0},
		{[]*provider.Page{page("", "a", "d"), page("", "b", "c")}, 3, "abc", "d", 0},
		{[]*provider.Page{page("e", "a", "c"), page("", "b", "d", "f", "g")}, 10, "abcd", "e", 0},
		{[]*provider.Page{page("c"), page("", "b", "d"), nil}, 10, "b", "c", 0},
		{[]*provider.Page{page("c"), unreadable}, 10, "b", "c", 1},
		{[]*provider.Page{page(""), unreadable}, 10, "b", "", 2},
	} {
		got, err := mergePages(tt.pages, provider.Query{PageSize: tt.size})
		if err != nil {
			t.Fatal(err)
		}
		var ids, next string
		for _, s := range got.Instances {
			ids += s.Instance.InstanceID
		}
		if got.Continuation != "" {
			places, err := provider.DecodeContinuation(got.Continuation, 1)
			if err != nil {
				t.Fatal(err)
			}
			next = places[0]
		}
		if ids != tt.want || next != tt.next || len(got.Unreadable) != tt.unreadable {
			t.Errorf("got %q, continuation %q and %d unreadable instances; want %q, %q and %d", ids, next, len(got.Unreadable), tt.want, tt.next, tt.unreadable)
		}
	}
}
