package leases

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfLeases(t *testing.T) {
	t.Parallel()
	// rows returns partition rows with the given owners, whose leases expire at a time.
	rows := func(expires time.Time, owners ...string) (all []wire.PartitionRow) {
		for i, owner := range owners {
			all = append(all, wire.PartitionRow{Queue: fmt.Sprintf("q%d", i), CurrentOwner: owner, ExpiresAt: expires})
		}
		return all
	}
	plan := func(rows []wire.PartitionRow) partitionPlan {
		return planPartitions(partitionState{rows: rows, now: passTime, worker: "me", lease: 30 * time.Second})
	}
	count := func(p partitionPlan, kind partitionStepKind) (n int) {
		for _, s := range p.steps {
			if s.kind == kind {
				n++
			}
		}
		return n
	}
	boundary.Check(t, "the expired lease of another worker is claimed", func(offset int) int {
		return count(plan(rows(passTime.Add(time.Duration(offset)), "other")), stepClaim)
	}, 1, 1, 0)
	boundary.Check(t, "the expiry of another worker's lease is awaited", func(offset int) bool {
		return !plan(rows(passTime.Add(time.Duration(offset)), "other")).expiry.IsZero()
	}, false, false, true)
	boundary.Check(t, "an own lease is renewed although it has expired", func(offset int) int {
		p := plan(rows(passTime.Add(time.Duration(offset)), "me", "other"))
		return 10*count(p, stepRenew) + count(p, stepClaim)
	}, 11, 11, 10)
	valid := passTime.Add(time.Minute)
	boundary.Check(t, "a worker with fewer partitions than the average requests some", func(offset int) int {
		owners := []string{"me", "me", "me", "me", "other", "other", "other", "other"}
		if offset < 0 {
			owners[0] = "other"
		} else if offset > 0 {
			owners[4] = "me"
		}
		return count(plan(rows(valid, owners...)), stepSteal)
	}, 1, 0, 0)
	boundary.Check(t, "a worker at the average requests a partition of a worker with two more", func(offset int) int {
		owners := []string{"me", "me", "me", "a", "a", "a", "a", "b", "b", "b"} // the average is 3
		if offset > 0 {
			owners[9] = "a"
		} else if offset < 0 {
			owners[3] = "b"
		}
		return count(plan(rows(valid, owners...)), stepSteal)
	}, 0, 0, 1)

	leasesOf := func(owners ...string) (all []BlobLease) {
		for i, owner := range owners {
			all = append(all, BlobLease{Partition: fmt.Sprintf("q%d", i), Owner: owner, Leased: owner != ""})
		}
		return all
	}
	boundary.Check(t, "a worker takes free leases up to its share", func(offset int) int {
		owners := []string{"me", "me", "other", "", "", ""} // the share is 3
		switch offset {
		case 0:
			owners[3] = "me"
		case 1:
			owners[3], owners[4] = "me", "me"
		}
		return len(planLeases(leasesOf(owners...), "me", true))
	}, 1, 0, 0)
	boundary.Check(t, "a worker that needs one lease takes it from a worker above its share", func(offset int) int {
		owners := [][]string{{"me", "a", "a", "b"}, {"me", "a", "a", "b", "b"}, {"me", "a", "a", "a", "b"}} // the share is 2
		return len(planLeases(leasesOf(owners[offset+1]...), "me", true))
	}, 0, 0, 1)
	boundary.Check(t, "the share is at least one lease if there are as many workers as leases", func(offset int) int {
		owners := [][]string{{"a", "a", ""}, {"a", "b", ""}, {"a", "b", "c"}} // the last one has no lease for this worker
		return len(planLeases(leasesOf(owners[offset+1]...), "me", true))
	}, 1, 1, 0)
}
