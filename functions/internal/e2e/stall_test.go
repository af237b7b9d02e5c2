//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// Operators can find, suspend, resume, end and purge an instance whose orchestrator blocks, by HTTP and by
// command, on each store. Other instances continue, and the app stops in time. The log of the test has the
// answer and the time of each verb.
//
// Each store has one app process, in which three kinds of orchestrator wait forever. The first kind gets its verbs by
// command, the others by HTTP. An endless loop occupies a processor until the app ends, so it runs on the local file only:
// the worker abandons an orchestrator in the same way on each store.
func TestStandalone_OperatorsEndInstancesWhoseOrchestratorBlocks(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	const localFile = "local file"
	for store, root := range map[string]string{
		localFile:           newRoot(t, newHub(), "", stallsSoon),
		"queues and tables": newRoot(t, newHub(), azuritetest.Start(t), stallsSoon),
		"partition logs": newRoot(t, newHub(), azuritetest.Start(t), func(durableTask map[string]any) {
			inPartitionLogs(durableTask)
			stallsSoon(durableTask)
		}),
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			a := startStandalone(t, e2eApp, root)
			failed := a.start("BlocksOnDurableCall", nil)
			blocked := []string{"BlocksOnSelect", "BlocksOnMutex", "BlocksOnRead"}
			started := map[string]checkStatus{}
			for _, name := range blocked {
				started[name] = a.start(name, nil)
			}
			if s := a.await(failed.StatusQueryGetURI, 0); s.RuntimeStatus != "Failed" || !strings.Contains(string(s.Output), "goroutine") {
				t.Errorf("a durable call on another goroutine: %s %s, want Failed with the reason", s.RuntimeStatus, s.Output)
			}
			for n, name := range blocked {
				a.endBlocked(name, started[name], n == 0, store == localFile)
			}
			if store == localFile {
				a.endBlocked("BlocksInLoop", a.start("BlocksInLoop", nil), false, true)
			}
			a.completed(a.start("Steps", map[string]int{"steps": 3}).StatusQueryGetURI, 0, "[1,4,9]")
			if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, 0, "the end of the app", a.ended)
		})
	}
}

func stallsSoon(durableTask map[string]any) { durableTask["orchestratorStallTimeout"] = "00:00:03" }

// endBlocked waits until the worker has abandoned a blocked instance, and applies each verb to it.
func (a *app) endBlocked(name string, i checkStatus, byCommand, isLocal bool) {
	a.t.Helper()
	var took strings.Builder
	verb := func(what string, act func(), until func() bool) {
		began := time.Now()
		act()
		answered := time.Since(began)
		eventually(a.t, 0, what+" to act on "+name, until)
		fmt.Fprintf(&took, " %s %d/%d ms", what, answered.Milliseconds(), time.Since(began).Milliseconds())
	}
	has := func(status string) func() bool {
		return func() bool { return a.status(i.StatusQueryGetURI).RuntimeStatus == status }
	}
	stalled := func() bool {
		return strings.Contains(a.call(http.MethodGet, "/api/durabletask/instances/"+i.ID+"/why", nil).body, "does not yield")
	}
	verb("stalled", func() {}, stalled)
	act := func(uri, reason string, command ...string) func() {
		if byCommand {
			return func() { mustHub(a.t, a.root, nil, command...) }
		}
		return func() { a.post(uri, reason, http.StatusAccepted) }
	}
	if byCommand {
		verb("why", func() {
			// In a storage account, the command does not know what the worker holds back.
			if got := mustHub(a.t, a.root, nil, "why", i.ID); !strings.Contains(got, "does not yield") && isLocal {
				a.t.Errorf("why of %s printed %s", name, got)
			}
		}, stalled)
	}
	verb("suspend", act(i.SuspendPostURI, "hold", "suspend", i.ID), has("Suspended"))
	verb("resume", act(i.ResumePostURI, "on", "resume", i.ID), stalled)
	verb("terminate", act(i.TerminatePostURI, "blocked", "terminate", i.ID, "--reason", "blocked"), has("Terminated"))
	verb("purge", func() { a.call(http.MethodDelete, i.PurgeHistoryDeleteURI, nil) }, func() bool {
		return a.call(http.MethodGet, i.StatusQueryGetURI, nil).status == http.StatusNotFound
	})
	a.t.Logf("%s: answer/effect:%s", name, took.String())
}

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
