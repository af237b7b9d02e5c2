package leases

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// partitionState is a worker's state at a look at the partitions table.
type partitionState struct {
	rows      []wire.PartitionRow // all of them, in the table's order
	now       time.Time
	worker    string        // who we are
	lease     time.Duration // how long a partition is ours without being renewed
	leaving   bool          // shutting down: give everything up
	listening map[string]bool
	drains    map[string]DrainState
}

// DrainState is how far the drain of a partition is.
type DrainState int

// The states, in their order.
const (
	NotDraining DrainState = iota
	Draining               // the queue is not read any more, sessions are still active
	Drained                // nothing of the partition is in use
)

// partitionPlan is what to do about it. A step that loses its ETag race makes those void
// that are written with it.
type partitionPlan struct {
	lost  []string // queues to stop reading: another worker has them
	drain []string // queues to stop reading, and to give up once their sessions end
	steps []partitionStep
	// owned counts the partitions that are ours or will be.
	owned int
	// unsettled means to look again soon: a worker is to release a partition.
	unsettled bool
	// expiry is when the first lease of another worker ends, zero if there is
	// none. A worker that lives renews long before.
	expiry time.Time
}

// partitionStep is one conditional write: row replaces what has its ETag.
type partitionStep struct {
	kind partitionStepKind
	row  wire.PartitionRow
	// listen means that the queue may be read once the write is done. Unlike
	// .NET's, it is never true for a partition that the write gives up
	// (TablePartitionManager.cs, TryAcquirePartitionsAsync, starts to listen
	// there and goes on for up to a second).
	listen bool
}

type partitionStepKind int

const (
	stepClaim   partitionStepKind = iota // take a partition without an owner
	stepRenew                            // keep ours
	stepDrain                            // say that we are giving it up
	stepRelease                          // give it up
	stepSteal                            // ask its owner for it
)

var partitionStepNames = [...]string{"claim", "renew", "drain", "release", "steal"}

func (k partitionStepKind) String() string { return partitionStepNames[k] }

// planPartitions decides one pass over the partitions table
// (DurableTask.AzureStorage/Partitioning/TablePartitionManager.cs,
// ReadAndWriteTableAsync). It is a function of s alone.
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
	owners []string // of others, in the order in which they were seen
	others map[string][]wire.PartitionRow
}

// keep decides about a row while we are at work: claim it, renew it, begin to
// give it up, or note whose it is.
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
		p.note(row.NextOwner, row)
	case row.IsDraining: // its owner is shutting down
		row.NextOwner = p.worker
		p.plan.owned++
		p.plan.unsettled = true
		p.step(stepSteal, row, false)
	default:
		p.note(row.CurrentOwner, row)
	}
}

// leave decides about a row while we are shutting down.
func (p *partitionPlanner) leave(row wire.PartitionRow) {
	if row.CurrentOwner == p.worker {
		p.drainStep(row)
	}
}

// drainStep drains a partition of ours: it stops being read, its sessions end, and then
// it is released to the worker that asked for it. NextOwner and the
// times stay (TablePartitionManager.cs, TryDrainPartitionAsync).
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

func (p *partitionPlanner) note(owner string, row wire.PartitionRow) {
	if _, seen := p.others[owner]; !seen {
		p.owners = append(p.owners, owner)
	}
	p.others[owner] = append(p.others[owner], row)
}

// loseVanished stops reading queues that have no row any more.
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

// balance asks others for partitions until we have as many as everybody should
// (TablePartitionManager.cs, BalanceLeases). The division rounds down, so that
// no worker asks for a partition that would leave the other with fewer than itself. A
// worker that has none to spare but more than one above the average still gives one.
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
