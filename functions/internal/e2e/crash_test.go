//go:build unix

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

const tenSquares = "[1,4,9,16,25,36,49,64,81,100]"

// tenSteps returns the input of a sequence of ten activities that write a trace.
func tenSteps(trace string) map[string]any {
	return map[string]any{"steps": 10, "delayMillis": 200, "trace": trace}
}

// traced returns the number and the process of each step in a trace, in the order of the runs.
func traced(t *testing.T, trace string) (steps, pids []int) {
	t.Helper()
	text, err := os.ReadFile(trace)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var step, pid int
		if _, err := fmt.Sscan(line, &step, &pid); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		steps, pids = append(steps, step), append(pids, pid)
	}
	return steps, pids
}

// awaitStep waits until a step has started.
func awaitStep(t *testing.T, trace string, step int) {
	t.Helper()
	eventually(t, 10*time.Second, "step "+strconv.Itoa(step), func() bool {
		steps, _ := traced(t, trace)
		return len(steps) > 0 && steps[len(steps)-1] >= step
	})
}

// checkTrace checks that all steps have run, and that each first ran after the previous steps. After a crash
// a step may run again, even late, if its result was sent and its message was not yet deleted.
func checkTrace(t *testing.T, trace string, n int) {
	t.Helper()
	steps, _ := traced(t, trace)
	done := 0
	for _, step := range steps {
		if step > done+1 {
			t.Fatalf("steps ran in the order %v", steps)
		}
		done = max(done, step)
	}
	if done != n {
		t.Fatalf("steps %v ran, want %d steps", steps, n)
	}
}

func TestCrash_AKilledHandlerResumesAfterARestart(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	trace := filepath.Join(t.TempDir(), "trace")
	first := startStandalone(t, e2eApp, root)
	id := first.start("Steps", tenSteps(trace)).ID
	awaitStep(t, trace, 5)
	first.kill()

	second := startStandalone(t, e2eApp, root)

	second.completed("/api/durabletask/instances/"+id, time.Minute, tenSquares)
	checkTrace(t, trace, 10)
	second.awaitLog(`resuming instance that another process was running.*instanceId=`+id+`.*name=Steps.*waitsFor=1`, time.Second)
}

func TestCrash_AStopReleasesThePartitionsForTheNextProcess(t *testing.T) {
	t.Parallel()
	connection, hub := azuritetest.Start(t), newHub()
	root := newRoot(t, hub, connection, nil)
	first := startStandalone(t, e2eApp, root)
	first.completed(first.start("Steps", map[string]int{"steps": 1}).StatusQueryGetURI, 30*time.Second, "[1]")
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	eventually(t, 15*time.Second, "the end of the process", first.ended)
	if left := owners(t, connection, hub); len(left) > 0 {
		t.Errorf("after the stop, workers still own partitions: %v", left)
	}

	second := startStandalone(t, e2eApp, root)

	second.completed(second.start("Steps", map[string]int{"steps": 1}).StatusQueryGetURI, 30*time.Second, "[1]")
}
