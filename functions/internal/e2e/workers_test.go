//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

func TestWorkers_ShareAHubAndTakeOverFromAKilledWorker(t *testing.T) {
	t.Parallel()
	connection, hub := azuritetest.Start(t), newHub()
	root := newRoot(t, hub, connection, nil)
	a := startStandalone(t, e2eApp, root)
	a.completed(a.start("Steps", map[string]int{"steps": 1}).StatusQueryGetURI, 30*time.Second, "[1]") // creates the hub
	eventually(t, 30*time.Second, "four partitions of one worker", func() bool {
		return fmt.Sprint(owners(t, connection, hub)) == "[4]"
	})
	b := startStandalone(t, e2eApp, root)
	began := time.Now()
	eventually(t, 90*time.Second, "two partitions each", func() bool {
		return fmt.Sprint(owners(t, connection, hub)) == "[2 2]"
	})
	t.Logf("the second worker had its two partitions after %v", time.Since(began).Round(time.Second))

	dir := t.TempDir()
	var ids []string
	for i := range 24 {
		to := a
		if i%2 == 1 {
			to = b
		}
		ids = append(ids, to.start("Steps", tenSteps(filepath.Join(dir, fmt.Sprint(i)))).ID)
	}
	for i := range 24 {
		awaitStep(t, filepath.Join(dir, fmt.Sprint(i)), 2)
	}
	a.kill()
	began = time.Now()

	for _, id := range ids {
		b.completed("/api/durabletask/instances/"+id, time.Minute, tenSquares)
	}
	t.Logf("all were complete %v after one of the workers was killed", time.Since(began).Round(time.Second))
	eventually(t, 30*time.Second, "four partitions of the survivor", func() bool {
		return fmt.Sprint(owners(t, connection, hub)) == "[4]"
	})
	workers := map[int]int{}
	for i := range 24 {
		trace := filepath.Join(dir, fmt.Sprint(i))
		checkTrace(t, trace, 10)
		_, pids := traced(t, trace)
		for _, pid := range pids {
			workers[pid]++
		}
	}
	if workers[a.cmd.Process.Pid] == 0 || workers[b.cmd.Process.Pid] == 0 {
		t.Errorf("activities by process: %v, want activities in both", workers)
	}
}

// owners returns the number of partitions of each worker, in descending order.
func owners(t *testing.T, connection, hub string) []int {
	t.Helper()
	counts := map[string]int{}
	for _, row := range readRows(t, connection, hub+"Partitions", "") {
		if owner, _ := row["CurrentOwner"].(string); owner != "" {
			counts[owner]++
		}
	}
	owned := slices.Sorted(maps.Values(counts))
	slices.Reverse(owned)
	return owned
}
