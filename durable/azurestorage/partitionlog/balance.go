package partitionlog

import (
	"slices"
	"strings"
)

// plan returns how many partitions a worker should release, or how many it should acquire. from are
// the partitions that no worker reports, in the order in which to try them. The map workers holds
// the reported partitions of all live workers, including this one.
//
// Each worker has a quota: the partitions divided by the workers. The remainder goes to the first
// workers in the order of their IDs. So all workers that see the same workers agree.
//
// A young worker may be one that crashes repeatedly. The plans of other workers give it no quota,
// unless they are young, too. It acquires partitions without an owner.
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
	// Each worker starts at a different partition, so that they do not compete for the same one.
	first := slices.Index(ids, me) * partitions / len(ids)
	for i := range partitions {
		if n := (first + i) % partitions; !claimed[n] {
			from = append(from, n)
		}
	}
	return 0, quota - len(mine), from
}
