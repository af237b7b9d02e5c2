package leases

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// partitionState is the input of one pass over the partitions table.
type partitionState struct {
	rows      []wire.PartitionRow // all rows, in the table's order
	now       time.Time
	worker    string        // ID of this worker
	lease     time.Duration // lease duration without renewal
	leaving   bool          // shutting down; release everything
	listening map[string]bool
	drains    map[string]DrainState
}

// DrainState is the progress of a partition's drain.
type DrainState int

// The states, in their order.
const (
	NotDraining DrainState = iota
	Draining               // the queue is no longer read; sessions are still active
	Drained                // nothing of the partition is in use
)

// partitionPlan is the result of one pass. If the ETag of one step does not match, all steps in the
// same transaction fail.
type partitionPlan struct {
	lost  []string // queues to stop reading, because another worker owns them
	drain []string // queues to stop reading and to release when their sessions have ended
	steps []partitionStep
	// owned is the number of partitions that this worker owns or will own.
	owned int
	// unsettled asks for another pass soon, because a partition is being transferred.
	unsettled bool
	// expiry is the earliest expiry of other workers' leases, zero if other workers have no leases. A
	// running worker renews its leases long before.
	expiry time.Time
}

// partitionStep is one conditional write: row replaces the row with its ETag.
type partitionStep struct {
	kind partitionStepKind
	row  wire.PartitionRow
	// listen means that the queue may be read after the write. It is false for a step that starts a
	// drain. (.NET starts to listen there and continues for up to a second: TablePartitionManager.cs,
	// TryAcquirePartitionsAsync.)
	listen bool
}

type partitionStepKind int

const (
	stepClaim   partitionStepKind = iota // acquire a free or expired partition
	stepRenew                            // renew an own lease
	stepDrain                            // mark an own partition as draining
	stepRelease                          // release an own partition
	stepSteal                            // request a partition from its owner
)

var partitionStepNames = [...]string{"claim", "renew", "drain", "release", "steal"}

func (k partitionStepKind) String() string { return partitionStepNames[k] }

// planPartitions plans one pass over the partitions table
// (DurableTask.AzureStorage/Partitioning/TablePartitionManager.cs, ReadAndWriteTableAsync). It is a
// pure function of s.
func planPartitions(s partitionState) partitionPlan {
	p := partitionPlanner{partitionState: s, others: map[string][]wire.PartitionRow{}}
	for _, row := range s.rows {
		if s.listening[row.Queue] && row.CurrentOwner != s.worker {
			p.plan.lost = append(p.plan.lost, row.Queue)
		}
		if s.leaving {
			p.leave(row)
			continue
		}
		p.keep(row)
		if row.CurrentOwner != s.worker && row.ExpiresAt.After(s.now) && (p.plan.expiry.IsZero() || row.ExpiresAt.Before(p.plan.expiry)) {
			p.plan.expiry = row.ExpiresAt
		}
	}
	p.loseVanished()
	if !s.leaving {
		p.balance()
	}
	return p.plan
}

type partitionPlanner struct {
	partitionState
	plan   partitionPlan
	owners []string // other workers, in the order of their first row
	others map[string][]wire.PartitionRow
}

// keep plans the action of a running worker on a row: claim, renew, drain, steal, or count its owner.
func (p *partitionPlanner) keep(row wire.PartitionRow) {
	free := row.CurrentOwner == "" && (row.NextOwner == "" || row.NextOwner == p.worker)
	switch {
	case row.CurrentOwner == p.worker && row.NextOwner != "":
		p.drainStep(row)
	case row.CurrentOwner == p.worker:
		p.plan.owned++
		row.IsDraining = false
		p.step(stepRenew, p.renewed(row), true)
	case free || !p.now.Before(row.ExpiresAt):
		p.plan.owned++
		p.step(stepClaim, p.claimed(row), true)
	case row.NextOwner == p.worker:
		p.plan.owned++
		p.plan.unsettled = true
	case row.NextOwner != "":
		p.recordOwner(row.NextOwner, row)
	case row.IsDraining: // the owner is shutting down
		row.NextOwner = p.worker
		p.plan.owned++
		p.plan.unsettled = true
		p.step(stepSteal, row, false)
	default:
		p.recordOwner(row.CurrentOwner, row)
	}
}

// leave plans the action of a leaving worker on a row.
func (p *partitionPlanner) leave(row wire.PartitionRow) {
	if row.CurrentOwner == p.worker {
		p.drainStep(row)
	}
}

// drainStep plans the next step of a drain: stop reading, wait for the sessions, and release the
// partition to the worker that requested it. NextOwner and the times do not change at the release
// (TablePartitionManager.cs, TryDrainPartitionAsync).
func (p *partitionPlanner) drainStep(row wire.PartitionRow) {
	p.plan.unsettled = true
	switch p.drains[row.Queue] {
	case Drained:
		row.CurrentOwner = ""
		row.IsDraining = false
		p.step(stepRelease, row, false)
		return
	case NotDraining:
		p.plan.drain = append(p.plan.drain, row.Queue)
	case Draining:
	}
	if p.leaving {
		p.plan.owned++
	}
	row.IsDraining = true
	p.step(stepDrain, p.renewed(row), false)
}

func (p *partitionPlanner) claimed(row wire.PartitionRow) wire.PartitionRow {
	row.CurrentOwner, row.NextOwner = p.worker, ""
	row.OwnedSince = p.now
	row.IsDraining = false
	return p.renewed(row)
}

func (p *partitionPlanner) renewed(row wire.PartitionRow) wire.PartitionRow {
	row.LastRenewal = p.now
	row.ExpiresAt = p.now.Add(p.lease)
	return row
}

func (p *partitionPlanner) step(kind partitionStepKind, row wire.PartitionRow, listen bool) {
	p.plan.steps = append(p.plan.steps, partitionStep{kind: kind, row: row, listen: listen})
}

func (p *partitionPlanner) recordOwner(owner string, row wire.PartitionRow) {
	if _, seen := p.others[owner]; !seen {
		p.owners = append(p.owners, owner)
	}
	p.others[owner] = append(p.others[owner], row)
}

// loseVanished plans to stop reading queues without a row.
func (p *partitionPlanner) loseVanished() {
	rows := map[string]bool{}
	for _, row := range p.rows {
		rows[row.Queue] = true
	}
	for _, queue := range sortedKeys(p.listening) {
		if p.listening[queue] && !rows[queue] {
			p.plan.lost = append(p.plan.lost, queue)
		}
	}
}

// balance requests partitions from other workers until this worker has its share
// (TablePartitionManager.cs, BalanceLeases). The average is rounded down, so that no worker requests a
// partition that would leave its owner with fewer partitions than the requester. If no partition is
// needed, a worker with more than one partition above the average still gives up one.
func (p *partitionPlanner) balance() {
	if len(p.owners) == 0 {
		return
	}
	average := len(p.rows) / (len(p.owners) + 1)
	if average < p.plan.owned {
		return
	}
	for _, owner := range p.owners {
		need := average - p.plan.owned
		if need < 0 {
			return
		}
		rows := p.others[owner]
		excess := len(rows) - average
		if excess <= 0 {
			continue
		}
		if need == 0 && excess > 1 {
			need = 1
		}
		for _, row := range rows[:min(need, excess)] {
			row.NextOwner = p.worker
			p.plan.owned++
			p.plan.unsettled = true
			p.step(stepSteal, row, false)
		}
	}
}
