//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// The time in which a process is stopped does not count toward the stall timeout of an orchestrator. In a
// running process, the worker abandons the same orchestrator.
func TestStandalone_TheStallTimeoutExcludesTheTimeOfAStoppedProcess(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	const stallTimeout = 5 * time.Second
	root := newRoot(t, newHub(), "", func(durableTask map[string]any) { durableTask["orchestratorStallTimeout"] = "00:00:05" })
	a := startStandalone(t, e2eApp, root)
	folder := t.TempDir()
	start := func(name string) (begun, ends, url string) {
		begun, ends = filepath.Join(folder, name+" begun"), filepath.Join(folder, name+" go")
		url = a.start("Blocks", map[string]string{"Begun": begun, "Go": ends}).StatusQueryGetURI
		eventually(t, 30*time.Second, "the orchestrator to run", func() bool {
			_, err := os.Stat(begun)
			return err == nil
		})
		return begun, ends, url
	}

	_, ends, url := start("stopped")
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * stallTimeout) // real time, because the process is stopped
	if err := os.WriteFile(ends, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.completed(url, 30*time.Second, `"went"`)
	if strings.Contains(a.log(), "was abandoned") {
		t.Error("the worker abandoned the orchestrator")
	}

	_, ends, _ = start("running")
	eventually(t, 60*time.Second, "the worker to abandon the orchestrator", func() bool {
		return strings.Contains(a.log(), "orchestrator was abandoned: it does not yield")
	})
	if err := os.WriteFile(ends, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
