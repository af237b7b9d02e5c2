//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// By default leases last 30 seconds, and workers check them every 10 seconds.
const (
	balancedWithin = 30 * time.Second
	leftWithin     = 10 * time.Second
	killedWithin   = 40 * time.Second

	quietFor = 15 * time.Second // each worker checks the leases in this time

	// overlapSlack allows for delayed log records. A bug would let two processes read a queue for a whole
	// lease or longer.
	overlapSlack = 10 * time.Second
	leaseLasts   = 30 * time.Second
)

// Processes join a hub of four partitions, leave it and are killed, with the default intervals. The test logs
// the measured times.
func TestLeases_AreBalancedAndTakenOver(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	for _, m := range []struct {
		name          string
		table, legacy bool
		owners        func(*fleet) map[string]string
	}{
		{"table", true, false, (*fleet).rowOwners},
		{"safe blob leases", false, false, func(f *fleet) map[string]string { return f.blobOwners("ownership") }},
		{"legacy blob leases", false, true, func(f *fleet) map[string]string { return f.blobOwners("default") }},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{T: t, connection: azuritetest.Start(t), hub: newHub(), legacy: m.legacy, owners: m.owners, ends: map[int]time.Time{}}
			f.root = newRoot(t, f.hub, f.connection, func(durableTask map[string]any) {
				storage := durableTask["storageProvider"].(map[string]any)
				storage["useTablePartitionManagement"], storage["useLegacyPartitionManagement"] = m.table, m.legacy
				storage["maxQueuePollingInterval"] = "00:00:01"
			})
			f.comeAndGo()
		})
	}
}

// fleet is a set of processes that share a hub.
type fleet struct {
	*testing.T
	connection, hub, root string
	legacy                bool                           // the manager with one lease per partition
	owners                func(*fleet) map[string]string // returns the worker of each partition
	alive, gone           []*app
	ends                  map[int]time.Time // times of the kills
}

func (f *fleet) comeAndGo() {
	f.Helper()
	f.join(1)
	first := f.alive[0]
	first.completed(first.start("Steps", map[string]int{"steps": 1}).StatusQueryGetURI, time.Minute, "[1]") // creates the hub
	f.settle("alone", balancedWithin)
	f.join(3)
	f.settle("1 to 4", balancedWithin)
	f.join(1) // one more than there are partitions
	f.settle("a fifth", balancedWithin)
	f.keepPartitions()

	f.leave(f.ownerAmong(f.owners(f)))
	f.settle("one of them left", leftWithin)
	f.kill(f.ownerAmong(f.owners(f)))
	f.settle("one was killed", killedWithin)
	for len(f.alive) > 1 {
		f.leave(f.alive[0])
	}
	f.settle("4 to 1", leftWithin)
	f.checkReaders()
}

// keepPartitions checks that a surplus worker steals no partition for as long as all workers keep their leases. On a
// slow machine a worker can lose its lease, and the others then balance its partitions. The check is repeated in this
// case. TestPartitions_AreSharedByTheRunningWorkers checks each steal in virtual time.
func (f *fleet) keepPartitions() {
	f.Helper()
	const periods, steal = 5, "AttemptingToStealLease"
	for range periods {
		before := f.count(steal)
		time.Sleep(quietFor)
		if f.count(steal) == before {
			return
		}
		time.Sleep(leaseLasts) // the leases of stalled workers have expired
		f.settle("a partition was stolen", killedWithin)
	}
	f.Errorf("with a surplus worker, partitions were stolen in each of %d periods of %v", periods, quietFor)
}

// join starts n processes.
func (f *fleet) join(n int) {
	f.Helper()
	for range n {
		f.alive = append(f.alive, startStandalone(f.T, e2eApp, f.root))
	}
}

// leave asks a process to stop.
func (f *fleet) leave(a *app) {
	f.Helper()
	f.remove(a)
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) kill(a *app) {
	f.Helper()
	f.remove(a)
	f.ends[a.cmd.Process.Pid] = time.Now()
	a.kill()
}

func (f *fleet) remove(a *app) {
	f.alive = slices.DeleteFunc(f.alive, func(other *app) bool { return other == a })
	f.gone = append(f.gone, a)
}

// count counts a text in the logs of all processes.
func (f *fleet) count(text string) (n int) {
	for _, a := range slices.Concat(f.alive, f.gone) {
		n += strings.Count(a.log(), text)
	}
	return n
}

// ownerAmong returns a process that owns a partition.
func (f *fleet) ownerAmong(owners map[string]string) *app {
	f.Helper()
	i := slices.IndexFunc(f.alive, func(a *app) bool { return f.shares(owners)[a.cmd.Process.Pid] > 0 })
	if i < 0 {
		f.Fatalf("no live process owns a partition: %v", owners)
	}
	return f.alive[i]
}

// shares returns the number of partitions of each process. -1 stands for partitions without an owner.
func (f *fleet) shares(owners map[string]string) map[int]int {
	f.Helper()
	counts := map[int]int{}
	for _, worker := range owners {
		pid := -1
		if i := slices.IndexFunc(slices.Concat(f.alive, f.gone), func(a *app) bool {
			return strings.Contains(worker, fmt.Sprintf("-%d-", a.cmd.Process.Pid))
		}); i >= 0 {
			pid = slices.Concat(f.alive, f.gone)[i].cmd.Process.Pid
		}
		counts[pid]++
	}
	return counts
}

// settle waits until the live processes own all partitions, and then until their shares differ by at most
// one. It logs both times. bound limits the first time. The shares can be uneven at first, because the first
// process acquires all free partitions.
func (f *fleet) settle(what string, bound time.Duration) {
	f.Helper()
	began := time.Now()
	var counts []int
	look := func() (total int) {
		shares := f.shares(f.owners(f))
		counts = nil
		for _, a := range f.alive {
			counts = append(counts, shares[a.cmd.Process.Pid])
			total += shares[a.cmd.Process.Pid]
		}
		return total
	}
	eventually(f.T, bound, what+": owners of all partitions", func() bool { return look() == 4 })
	served := time.Since(began)
	eventually(f.T, balancedWithin, what+": even shares", func() bool {
		return look() == 4 && slices.Max(counts)-slices.Min(counts) <= 1
	})
	f.Logf("%s: %d processes own all partitions after %.1f s (limit %v) and even shares after %.1f s",
		what, len(f.alive), served.Seconds(), bound, time.Since(began).Seconds())
}

// rowOwners reads the owners from the partitions table.
func (f *fleet) rowOwners() map[string]string {
	f.Helper()
	owners := map[string]string{}
	for _, row := range readRows(f.T, f.connection, f.hub+"Partitions", "") {
		owners[row["RowKey"].(string)], _ = row["CurrentOwner"].(string)
	}
	return owners
}

// blobOwners reads the owners from the lease blobs in a folder.
func (f *fleet) blobOwners(folder string) map[string]string {
	f.Helper()
	service, err := azblob.NewClientFromConnectionString(f.connection, nil)
	if err != nil {
		f.Fatal(err)
	}
	owners := map[string]string{}
	container, prefix := strings.ToLower(f.hub)+"-leases", folder+"/"
	for pages := service.NewListBlobsFlatPager(container, &azblob.ListBlobsFlatOptions{Prefix: &prefix}); pages.More(); {
		page, err := pages.NextPage(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		for _, item := range page.Segment.BlobItems {
			owners[*item.Name] = ""
			if state := item.Properties.LeaseState; state == nil || *state != lease.StateTypeLeased {
				continue
			}
			resp, err := service.DownloadStream(f.Context(), container, *item.Name, nil)
			if err != nil {
				f.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			var said struct{ Owner string }
			if err == nil && len(text) > 0 {
				err = json.Unmarshal(text, &said)
			}
			if err != nil {
				f.Fatalf("%s: %v in %s", *item.Name, err, text)
			}
			owners[*item.Name] = said.Owner
		}
	}
	return owners
}

// stint is a period in which a process read a control queue.
type stint struct {
	pid           int
	begin, end    time.Time
	missedStorage bool // the process could not read its leases in this period
}

var partitionLine = regexp.MustCompile(`time=(\S+) level=\S+ msg="(partition acquired|partition released|partition lost|another worker requested the partition|cannot release the partition's lease)[^"]*" taskHub=\S+(?: event=\S+)? partition=(\S+)`)

var unreachableLine = regexp.MustCompile(`time=(\S+) level=\S+ msg="storage is unreachable[^"]*" .*part="(?:partition leases|partitions table)"`)

var stoppedLine = regexp.MustCompile(`time=(\S+) level=\S+ msg="task hub stopped"`)

// time returns the time of a log record.
func (f *fleet) time(text string) time.Time {
	f.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		f.Fatal(err)
	}
	return at
}

// stints returns the periods of each queue according to the processes' logs.
func (f *fleet) stints() map[string][]stint {
	f.Helper()
	all := map[string][]stint{}
	for _, a := range slices.Concat(f.alive, f.gone) {
		pid := a.cmd.Process.Pid
		end, killed := f.ends[pid]
		if m := stoppedLine.FindStringSubmatch(a.log()); m != nil { // it logs no released partition if the drain timeout is over
			end = f.time(m[1])
		} else if !killed {
			end = time.Now()
		}
		open := map[string]*stint{}
		for _, m := range partitionLine.FindAllStringSubmatch(a.log(), -1) {
			at := f.time(m[1])
			switch s := open[m[3]]; {
			case m[2] == "partition acquired":
				open[m[3]] = &stint{pid: pid, begin: at, end: end}
			case s != nil:
				s.end = at
				all[m[3]] = append(all[m[3]], *s)
				delete(open, m[3])
			}
		}
		for queue, s := range open {
			all[queue] = append(all[queue], *s)
		}
		for _, m := range unreachableLine.FindAllStringSubmatch(a.log(), -1) {
			at := f.time(m[1])
			for _, stints := range all {
				for i, s := range stints {
					if s.pid == pid && at.After(s.begin) && at.Before(s.end) {
						stints[i].missedStorage = true
					}
				}
			}
		}
	}
	return all
}

// checkReaders checks that no two processes read a queue at the same time.
func (f *fleet) checkReaders() {
	f.Helper()
	readings, longest := 0, time.Duration(0)
	for queue, stints := range f.stints() {
		slices.SortFunc(stints, func(a, b stint) int { return a.begin.Compare(b.begin) })
		readings += len(stints)
		for i := 1; i < len(stints); i++ {
			before, after := stints[i-1], stints[i]
			overlap := before.end.Sub(after.begin)
			longest = max(longest, overlap)
			slack := overlapSlack
			if before.missedStorage { // the process detects a takeover when its lease expires
				slack += leaseLasts
			}
			if overlap > slack {
				f.Errorf("%s was read by process %d until %v, and by process %d from %v", queue, before.pid, before.end, after.pid, after.begin)
			}
		}
	}
	if readings < 4 {
		f.Errorf("the logs contain %d reading periods, want at least 4", readings)
	}
	f.Logf("%d reading periods; longest overlap: %v", readings, longest)
}
