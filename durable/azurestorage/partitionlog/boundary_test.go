package partitionlog

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfShares(t *testing.T) {
	t.Parallel()
	// shares plans for a worker that has 3 partitions and some more, of 6, beside another worker.
	shares := func(me, other string) func(offset int) [2]int {
		return func(offset int) [2]int {
			all := []int{0, 1, 2, 3, 4, 5}
			release, want, _ := plan(me, map[string][]int{me: all[:3+offset], other: all[3+max(offset, 0):]}, nil, 6)
			return [2]int{release, want}
		}
	}
	for _, ids := range [][2]string{{"a", "b"}, {"b", "a"}} {
		boundary.Check(t, "a worker at its share", shares(ids[0], ids[1]), [2]int{0, 1}, [2]int{0, 0}, [2]int{1, 0})
	}
	// The rest of an uneven division belongs to the first workers, in the order of their IDs.
	boundary.Check(t, "the rest of a division", func(offset int) int {
		ids := []string{"a", "b", "c"}
		me := ids[1+offset]
		_, want, _ := plan(me, map[string][]int{"a": nil, "b": nil, "c": nil}, nil, 5)
		return want
	}, 2, 2, 1)
	boundary.Check(t, "as many workers as partitions", func(offset int) int {
		workers := map[string][]int{}
		for i := range 3 + offset {
			workers[string(rune('a'+i))] = nil
		}
		last := string(rune('a' + 2 + offset))
		_, want, _ := plan(last, workers, nil, 3)
		return want
	}, 1, 1, 0)
}
