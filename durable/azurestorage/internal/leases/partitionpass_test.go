package leases

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/google/go-cmp/cmp"
)

var passTime = time.Date(2026, 11, 20, 18, 35, 0, 0, time.UTC)

// row returns a partition row whose lease expires ttl after passTime.
func row(queue, current, next string, ttl time.Duration, isDraining bool) wire.PartitionRow {
	r := wire.PartitionRow{Queue: queue, CurrentOwner: current, NextOwner: next, IsDraining: isDraining, ETag: "e-" + queue}
	if current != "" || next != "" {
		r.ExpiresAt = passTime.Add(ttl)
		r.LastRenewal = r.ExpiresAt.Add(-30 * time.Second)
		r.OwnedSince = r.LastRenewal
	}
	return r
}

// summary returns a plan as one line: "lost=… drain=… q:kind:current/next[:listen] … owned=… unsettled".
func (p partitionPlan) summary() string {
	var parts []string
	if len(p.lost) > 0 {
		parts = append(parts, "lost="+strings.Join(p.lost, ","))
	}
	if len(p.drain) > 0 {
		parts = append(parts, "drain="+strings.Join(p.drain, ","))
	}
	for _, s := range p.steps {
		text := fmt.Sprintf("%s:%s:%s/%s", s.row.Queue, s.kind, s.row.CurrentOwner, s.row.NextOwner)
		if s.row.IsDraining {
			text += ":draining"
		}
		if s.listen {
			text += ":listen"
		}
		parts = append(parts, text)
	}
	parts = append(parts, fmt.Sprintf("owned=%d", p.owned))
	if p.unsettled {
		parts = append(parts, "unsettled")
	}
	return strings.Join(parts, " ")
}

func TestPlanPartitions_DecidesAsTablePartitionManager(t *testing.T) {
	const ttl, over = 20 * time.Second, -time.Second
	listening := func(queues ...string) map[string]bool {
		m := map[string]bool{}
		for _, q := range queues {
			m[q] = true
		}
		return m
	}
	for name, tt := range map[string]struct {
		rows      []wire.PartitionRow
		listening map[string]bool
		drains    map[string]DrainState
		leaving   bool
		want      string
	}{
		"all partitions of a new hub are claimed": {
			rows: []wire.PartitionRow{row("0", "", "", 0, false), row("1", "", "", 0, false)},
			want: "0:claim:me/:listen 1:claim:me/:listen owned=2",
		},
		"own partitions are renewed": {
			rows:      []wire.PartitionRow{row("0", "me", "", ttl, false)},
			listening: listening("0"),
			want:      "0:renew:me/:listen owned=1",
		},
		"an expired lease of another worker is claimed": {
			rows: []wire.PartitionRow{row("0", "other", "", over, false)},
			want: "0:claim:me/:listen owned=1",
		},
		"a lease of another worker is claimed at the moment of its expiry": {
			rows: []wire.PartitionRow{row("0", "other", "", 0, false)},
			want: "0:claim:me/:listen owned=1",
		},
		"an expired lease is claimed even if a third worker has requested it": {
			rows: []wire.PartitionRow{row("0", "other", "third", over, false)},
			want: "0:claim:me/:listen owned=1",
		},
		"a partition released to this worker is claimed": {
			rows: []wire.PartitionRow{row("0", "", "me", ttl, false)},
			want: "0:claim:me/:listen owned=1",
		},
		"a partition released to another worker is not claimed": {
			rows: []wire.PartitionRow{row("0", "", "other", ttl, false)},
			want: "owned=0",
		},
		"a partition released to a worker that never claimed it is claimed after its expiry": {
			rows: []wire.PartitionRow{row("0", "", "other", over, false)},
			want: "0:claim:me/:listen owned=1",
		},
		"half of another worker's partitions are requested": {
			rows: []wire.PartitionRow{row("0", "other", "", ttl, false), row("1", "other", "", ttl, false), row("2", "other", "", ttl, false), row("3", "other", "", ttl, false)},
			want: "0:steal:other/me 1:steal:other/me owned=2 unsettled",
		},
		"the owner of an odd number of partitions keeps the larger part": {
			rows: []wire.PartitionRow{row("0", "other", "", ttl, false), row("1", "other", "", ttl, false), row("2", "other", "", ttl, false)},
			want: "0:steal:other/me owned=1 unsettled",
		},
		"the only partition of another worker is not requested": {
			rows: []wire.PartitionRow{row("0", "other", "", ttl, false)},
			want: "owned=0",
		},
		"a third worker requests a partition from a worker that can spare one": {
			rows: []wire.PartitionRow{row("0", "a", "", ttl, false), row("1", "a", "", ttl, false), row("2", "b", "", ttl, false), row("3", "b", "", ttl, false)},
			want: "0:steal:a/me owned=1 unsettled",
		},
		"evenly shared partitions are not moved": {
			rows:      []wire.PartitionRow{row("0", "me", "", ttl, false), row("1", "other", "", ttl, false)},
			listening: listening("0"),
			want:      "0:renew:me/:listen owned=1",
		},
		"a worker at the average requests a partition from a worker with two more than the average": {
			rows: []wire.PartitionRow{
				row("0", "me", "", ttl, false), row("1", "a", "", ttl, false), row("2", "a", "", ttl, false),
				row("3", "a", "", ttl, false), row("4", "b", "", ttl, false),
			},
			listening: listening("0"),
			want:      "0:renew:me/:listen 1:steal:a/me owned=2 unsettled",
		},
		"requested partitions count as this worker's": {
			rows: []wire.PartitionRow{row("0", "other", "me", ttl, false), row("1", "other", "", ttl, false)},
			want: "owned=1 unsettled",
		},
		"partitions that others requested count as theirs": {
			rows: []wire.PartitionRow{row("0", "other", "third", ttl, false), row("1", "other", "", ttl, false)},
			want: "owned=0",
		},
		"a partition that another worker requested is drained": {
			rows:      []wire.PartitionRow{row("0", "me", "other", ttl, false), row("1", "me", "", ttl, false)},
			listening: listening("0", "1"),
			want:      "drain=0 0:drain:me/other:draining 1:renew:me/:listen owned=1 unsettled",
		},
		"a draining partition is renewed while it has sessions": {
			rows:   []wire.PartitionRow{row("0", "me", "other", ttl, true)},
			drains: map[string]DrainState{"0": Draining},
			want:   "0:drain:me/other:draining owned=0 unsettled",
		},
		"a drained partition is released and not read": {
			rows:   []wire.PartitionRow{row("0", "me", "other", ttl, true)},
			drains: map[string]DrainState{"0": Drained},
			want:   "0:release:/other owned=0 unsettled",
		},
		"a drained partition is released even if its lease has expired": {
			rows:   []wire.PartitionRow{row("0", "me", "other", over, true)},
			drains: map[string]DrainState{"0": Drained},
			want:   "0:release:/other owned=0 unsettled",
		},
		"a partition that another worker owns now is no longer read": {
			rows:      []wire.PartitionRow{row("0", "other", "", ttl, false)},
			listening: listening("0"),
			want:      "lost=0 owned=0",
		},
		"a partition without a row is no longer read": {
			rows:      []wire.PartitionRow{row("0", "me", "", ttl, false)},
			listening: listening("0", "1"),
			want:      "lost=1 0:renew:me/:listen owned=1",
		},
		"a partition whose owner is shutting down is requested": {
			rows: []wire.PartitionRow{row("0", "other", "", ttl, true)},
			want: "0:steal:other/me:draining owned=1 unsettled",
		},
		"an own row that is still marked as draining is reset": {
			rows: []wire.PartitionRow{row("0", "me", "", ttl, true)},
			want: "0:renew:me/:listen owned=1",
		},
		"an own expired lease is renewed": {
			rows: []wire.PartitionRow{row("0", "me", "", over, false)},
			want: "0:renew:me/:listen owned=1",
		},
		"a leaving worker drains its partitions and claims none": {
			rows:      []wire.PartitionRow{row("0", "me", "", ttl, false), row("1", "", "", 0, false), row("2", "other", "", over, false)},
			listening: listening("0"),
			leaving:   true,
			want:      "drain=0 0:drain:me/:draining owned=1 unsettled",
		},
		"a leaving worker releases drained partitions": {
			rows:    []wire.PartitionRow{row("0", "me", "", ttl, true), row("1", "me", "other", ttl, false)},
			drains:  map[string]DrainState{"0": Drained, "1": Drained},
			leaving: true,
			want:    "0:release:/ 1:release:/other owned=0 unsettled",
		},
		"a leaving worker without partitions is done": {
			rows:    []wire.PartitionRow{row("0", "other", "me", ttl, false)},
			leaving: true,
			want:    "owned=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := planPartitions(partitionState{
				rows: tt.rows, now: passTime, worker: "me", lease: 30 * time.Second,
				listening: tt.listening, drains: tt.drains, leaving: tt.leaving,
			}).summary()
			if got != tt.want {
				t.Errorf("plan\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPlanPartitions_SetsTheTimes(t *testing.T) {
	claimed := planPartitions(partitionState{
		rows: []wire.PartitionRow{row("0", "", "", 0, false)}, now: passTime, worker: "me", lease: 30 * time.Second,
	}).steps[0].row
	want := wire.PartitionRow{
		Queue: "0", CurrentOwner: "me", OwnedSince: passTime, LastRenewal: passTime,
		ExpiresAt: passTime.Add(30 * time.Second), ETag: "e-0",
	}
	if diff := cmp.Diff(want, claimed); diff != "" {
		t.Errorf("claimed row (-want +got):\n%s", diff)
	}
	later := passTime.Add(10 * time.Second)
	renewed := planPartitions(partitionState{
		rows: []wire.PartitionRow{claimed}, now: later, worker: "me", lease: 30 * time.Second,
	}).steps[0].row
	want.LastRenewal, want.ExpiresAt = later, later.Add(30*time.Second)
	if diff := cmp.Diff(want, renewed); diff != "" {
		t.Errorf("renewed row (-want +got):\n%s", diff)
	}
}

func TestPlanPartitions_ReturnsTheEarliestExpiryOfOtherLeases(t *testing.T) {
	for name, tt := range map[string]struct {
		rows []wire.PartitionRow
		want time.Time
	}{
		"no leases of others":        {[]wire.PartitionRow{row("0", "me", "", time.Second, false), row("1", "", "", 0, false)}, time.Time{}},
		"the earliest of two":        {[]wire.PartitionRow{row("0", "a", "", 9*time.Second, false), row("1", "b", "", 5*time.Second, false)}, passTime.Add(5 * time.Second)},
		"expired leases are ignored": {[]wire.PartitionRow{row("0", "a", "", -time.Second, false), row("1", "b", "", 5*time.Second, false)}, passTime.Add(5 * time.Second)},
		"released, not claimed":      {[]wire.PartitionRow{row("0", "", "a", 3*time.Second, false)}, passTime.Add(3 * time.Second)},
	} {
		got := planPartitions(partitionState{rows: tt.rows, now: passTime, worker: "me", lease: 30 * time.Second}).expiry
		if !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// planPartitions plans every write that two .NET workers made to the partitions table while one joined
// and one left.
func TestPlanPartitions_MakesTheRecordedWrites(t *testing.T) {
	type putRow struct {
		before, after wire.PartitionRow
		rows          []wire.PartitionRow
		scenario      string
	}
	var puts []putRow
	var rows []wire.PartitionRow
	for _, e := range recordings.Rows(t) {
		if e.Request.Folder != "pm" || e.Table != "Partitions" || !strings.HasPrefix(e.Request.Scenario, "table-") {
			continue
		}
		r, err := wire.DecodePartitionRow(e.Raw)
		if err != nil {
			t.Fatal(err)
		}
		switch e.Verb {
		case "GET":
			if len(rows) > 0 && rows[len(rows)-1].Queue >= r.Queue {
				rows = nil // the first row of another response
			}
			rows = append(rows, r)
		case "PUT":
			for _, before := range rows {
				if before.Queue == r.Queue {
					puts = append(puts, putRow{before, r, rows, e.Request.Scenario})
				}
			}
		}
	}
	if len(puts) < 20 {
		t.Fatalf("%d recorded writes, want more", len(puts))
	}
	for _, p := range puts {
		worker := p.after.CurrentOwner
		switch {
		case p.before.NextOwner == "" && p.after.NextOwner != "":
			worker = p.after.NextOwner
		case worker == "":
			worker = p.before.CurrentOwner
		}
		state := partitionState{
			rows: p.rows, now: p.after.LastRenewal, worker: worker, lease: 30 * time.Second,
			listening: map[string]bool{}, drains: map[string]DrainState{},
			leaving: p.scenario == "table-stop1" && worker == "worker1" || p.scenario == "table-stop2",
		}
		if p.after.CurrentOwner == "" {
			for _, r := range p.rows {
				if r.IsDraining {
					state.drains[r.Queue] = Drained
				}
			}
		}
		var got []string
		found := false
		for _, step := range planPartitions(state).steps {
			r := step.row
			same := r.Queue == p.after.Queue && r.CurrentOwner == p.after.CurrentOwner && r.NextOwner == p.after.NextOwner &&
				r.IsDraining == p.after.IsDraining && r.LastRenewal.Equal(p.after.LastRenewal) &&
				r.ExpiresAt.Sub(p.after.ExpiresAt).Abs() < time.Millisecond && r.OwnedSince.Sub(p.after.OwnedSince).Abs() < time.Millisecond
			found = found || same
			got = append(got, fmt.Sprintf("%s %+v", step.kind, r))
		}
		if !found {
			t.Errorf("%s, %s: recorded %+v, planned\n%s", p.scenario, worker, p.after, strings.Join(got, "\n"))
		}
	}
}

// In any order of passes, two workers never read one queue at the same time if their clocks agree. In the
// end, the partitions are balanced.
func TestPlanPartitions_NeverAllowsTwoReadersAndBalances(t *testing.T) {
	for seed := range uint64(300) {
		simulatePartitions(t, seed)
		if t.Failed() {
			return
		}
	}
}

type simulatedWorker struct {
	name      string
	listening map[string]time.Time // queue → end of the lease
	drains    map[string]DrainState
	next      time.Duration
	leaving   bool
	dead      bool
}

func simulatePartitions(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	table := make([]wire.PartitionRow, 1+random.IntN(8))
	for i := range table {
		table[i] = wire.PartitionRow{Queue: fmt.Sprintf("q%d", i), ETag: "0"}
	}
	workers := make([]*simulatedWorker, 1+random.IntN(4))
	for i := range workers {
		workers[i] = &simulatedWorker{
			name: fmt.Sprintf("w%d", i), listening: map[string]time.Time{}, drains: map[string]DrainState{},
			next: time.Duration(random.IntN(60)) * time.Second,
		}
	}
	fate := time.Duration(60+random.IntN(60)) * time.Second
	version := 0
	end := 5 * time.Minute
	for now := time.Duration(0); now < end; now += 250 * time.Millisecond {
		at := passTime.Add(now)
		if now == fate.Truncate(250*time.Millisecond) && len(workers) > 1 {
			if random.IntN(2) == 0 {
				workers[0].leaving, workers[0].next = true, now
			} else {
				workers[0].dead = true
				clear(workers[0].listening)
			}
		}
		for _, w := range workers {
			if w.dead || w.next > now {
				continue
			}
			listening := map[string]bool{}
			for q := range w.listening {
				listening[q] = true
			}
			for q, s := range w.drains {
				if s == Draining && random.IntN(3) == 0 {
					w.drains[q] = Drained
				}
			}
			seen := append([]wire.PartitionRow(nil), table...)
			if random.IntN(10) == 0 { // another worker writes between the read and the write
				i := random.IntN(len(table))
				version++
				table[i].ETag = fmt.Sprint(version)
			}
			plan := planPartitions(partitionState{
				rows: seen, now: at, worker: w.name, lease: 30 * time.Second, listening: listening, drains: w.drains, leaving: w.leaving,
			})
			for _, q := range plan.lost {
				delete(w.listening, q)
			}
			for _, q := range plan.drain {
				delete(w.listening, q)
				w.drains[q] = Draining
			}
			w.next = now + 10*time.Second
			if plan.unsettled {
				w.next = now + time.Second
			}
			for _, step := range plan.steps {
				i := 0
				for table[i].Queue != step.row.Queue {
					i++
				}
				if table[i].ETag != step.row.ETag {
					w.next = now
					break
				}
				version++
				table[i] = step.row
				table[i].ETag = fmt.Sprint(version)
				if step.kind == stepRelease {
					w.drains[step.row.Queue] = NotDraining
				}
				if step.listen {
					w.listening[step.row.Queue] = step.row.ExpiresAt
					w.drains[step.row.Queue] = NotDraining
				}
			}
		}
		for _, r := range table {
			var readers []string
			for _, w := range workers {
				if until, ok := w.listening[r.Queue]; ok && at.Before(until) {
					readers = append(readers, w.name)
				}
			}
			if len(readers) > 1 {
				t.Errorf("seed %d, %v: %s is read by %v", seed, now, r.Queue, readers)
				return
			}
		}
	}
	least, most := len(table), 0
	alive := 0
	for _, w := range workers {
		if !w.dead && !w.leaving {
			least, most = min(least, len(w.listening)), max(most, len(w.listening))
			alive++
		} else if len(w.listening) > 0 {
			t.Errorf("seed %d: %s has stopped but still reads %v", seed, w.name, w.listening)
		}
	}
	total := 0
	for _, w := range workers {
		total += len(w.listening)
	}
	// BalanceLeases rounds the average down, so a worker may have one partition more than its share
	// after other workers have left.
	if total != len(table) || most-least > 1 && alive > 1 && most > len(table)/alive+1 {
		t.Errorf("seed %d: %d partitions, %d read, from %d to %d by each of %d workers", seed, len(table), total, least, most, alive)
	}
}
