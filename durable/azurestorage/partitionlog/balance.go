package partitionlog

import (
	"slices"
	"strings"
)

// plan decides how many partitions a worker gives up, or how many it wants to take and of
// which, given all workers that are alive with the partitions that they say they have,
// itself among them. Every worker has a quota: all of them take the same number of partitions, and the
// first ones in the order of their IDs one more, until all are taken. So all workers that
// see the same ones agree.
//
// A young worker may be one that crashes again and again, so it has no quota in the plans of
// the others, unless they are young, too. It takes partitions that no worker has.
func plan(me string, workers map[string][]int, young map[string]bool, partitions int) (release, want int, from []int) {
	ids := []string{me}
	for id := range workers {
		if id != me && (!young[id] || young[me]) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, strings.Compare)
	quota := partitions / len(ids)
	if slices.Index(ids, me) < partitions%len(ids) {
		quota++
	}
	mine := workers[me]
	if len(mine) >= quota {
		return len(mine) - quota, 0, nil
	}
	claimed := make([]bool, partitions)
	for _, all := range workers {
		for _, n := range all {
			if n >= 0 && n < partitions {
				claimed[n] = true
			}
		}
	}
	// Workers begin at different places, so that they do not try the same at once.
	first := slices.Index(ids, me) * partitions / len(ids)
	for i := range partitions {
		if n := (first + i) % partitions; !claimed[n] {
			from = append(from, n)
		}
	}
	return 0, quota - len(mine), from
}
