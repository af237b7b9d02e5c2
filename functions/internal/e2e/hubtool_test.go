//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// ran is the result of a run of `app hub`.
type ran struct {
	code         int
	stdout, errs string
}

// hubTool runs `app hub` in root.
func hubTool(t *testing.T, root string, env []string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, e2eApp), append([]string{"hub"}, args...)...)
	cmd.Dir, cmd.Env = root, environment(env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code is checked
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// mustHub runs hubTool, which must succeed, and returns its output. It retries if the storage of a slow
// machine responds too late.
func mustHub(t *testing.T, root string, env []string, args ...string) string {
	t.Helper()
	var got ran
	patience.Until(t, "the storage answers", func() bool {
		got = hubTool(t, root, env, args...)
		return !strings.Contains(got.errs, "does not answer. Try again later")
	})
	if got.code != 0 {
		t.Fatalf("hub %s: exit code %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.errs)
	}
	return got.stdout
}

func TestHubTool_WorksWithoutARunningApp(t *testing.T) {
	t.Parallel()
	for name, root := range map[string]string{
		"embedded": newRoot(t, newHub(), "", nil), "Azure Storage": newRoot(t, newHub(), azuritetest.Start(t), nil),
		"partition logs": newRoot(t, newHub(), azuritetest.Start(t), inPartitionLogs),
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustHub(t, root, nil, "start", "Waits", "--id", "a"); got != "a\n" {
				t.Errorf("start printed %q", got)
			}
			if got := hubTool(t, root, nil, "start", "Waits", "--id", "a"); got.code != 4 || !strings.Contains(got.errs, "already exists") {
				t.Errorf("start of an existing instance: %+v, want exit code 4", got)
			}
			if got := hubTool(t, root, nil, "get", "b"); got.code != 3 {
				t.Errorf("get of an unknown instance: %+v, want exit code 3", got)
			}
			if got := mustHub(t, root, nil, "get", "a"); !strings.Contains(got, "Status\tPending") {
				t.Errorf("get printed %s", got)
			}
			if got := mustHub(t, root, nil, "list"); !strings.Contains(got, "a\tWaits\tPending") {
				t.Errorf("list printed %s", got)
			}
			if got := hubTool(t, root, nil, "delete"); got.code != 2 {
				t.Errorf("delete without --yes: %+v, want exit code 2", got)
			}
			mustHub(t, root, nil, "delete", "--yes")
			if name == "embedded" {
				if left, err := filepath.Glob(filepath.Join(root, ".durable-*")); err != nil || len(left) > 0 {
					t.Errorf("left after the delete: %v, %v", left, err)
				}
			}
		})
	}
}

func TestHubTool_UsesTheAppThatHasTheFile(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), "", nil)
	a := startStandalone(t, e2eApp, root, "DURABLE_KEY=the key of this test")
	key := []string{"DURABLE_KEY=the key of this test"}
	eventually(t, 30*time.Second, "the app to open its file", func() bool {
		return hubTool(t, root, key, "list").code == 0 && strings.Contains(a.log(), "connected to storage")
	})
	mustHub(t, root, key, "start", "Waits", "--id", "a")
	eventually(t, 30*time.Second, "the app to run it", func() bool {
		return strings.Contains(mustHub(t, root, key, "get", "a"), "Status\tRunning")
	})
	mustHub(t, root, key, "suspend", "a", "--reason", "wait")
	eventually(t, 30*time.Second, "the suspension", func() bool {
		return strings.Contains(mustHub(t, root, key, "list", "--status", "suspended"), "a\tWaits\tSuspended")
	})
	mustHub(t, root, key, "resume", "a")
	mustHub(t, root, key, "raise", "a", "Answer", "--data", `"yes"`)
	eventually(t, 30*time.Second, "the end", func() bool {
		return strings.Contains(mustHub(t, root, key, "get", "a"), "Output\t\"yes\"")
	})
	if got := mustHub(t, root, key, "history", "a"); !strings.Contains(got, "ExecutionCompleted") || !strings.Contains(got, "Answer") {
		t.Errorf("history printed %s", got)
	}
	if got := hubTool(t, root, key, "raise", "a", "Answer"); got.code != 4 {
		t.Errorf("raise for an ended instance: %+v, want exit code 4", got)
	}
	var again struct{ InstanceID string }
	if err := json.Unmarshal([]byte(mustHub(t, root, key, "restart", "a", "--output", "json")), &again); err != nil || again.InstanceID == "a" {
		t.Errorf("restarted as %q, %v", again.InstanceID, err)
	}
	mustHub(t, root, key, "terminate", again.InstanceID)
	mustHub(t, root, key, "purge", "a")
	if got := hubTool(t, root, key, "get", "a"); got.code != 3 {
		t.Errorf("get of a purged instance: %+v, want exit code 3", got)
	}
	if got := mustHub(t, root, key, "start", "Steps", "--input", `{"steps":2}`, "--wait", "30s"); !strings.Contains(got, "[1,4]") {
		t.Errorf("start --wait printed %s", got)
	}
	if got := hubTool(t, root, nil, "list"); got.code == 0 || !strings.Contains(got.errs, "DURABLE_KEY") {
		t.Errorf("without the key: %+v, want an error that names DURABLE_KEY", got)
	}
	if got := hubTool(t, root, key, "delete", "--yes"); got.code == 0 || !strings.Contains(got.errs, "is in use by process") {
		t.Errorf("delete of a hub in use: %+v, want an error that names the holder", got)
	}
	if got := hubTool(t, root, key, "copy", "embedded", "embedded:"+filepath.Join(root, "copy.db"), "--wait", "1s"); got.code == 0 || !strings.Contains(got.errs, "is in use by process") {
		t.Errorf("copy of a hub in use: %+v, want an error that names the holder", got)
	}
}

// underWay is the work in a hub that is copied: fifty instances in all stages, with their expected outputs.
type underWay struct{ outputs map[string]string }

// fill starts instances on an app and stops the app while they are running.
func fill(t *testing.T, a *app, root string, env []string) underWay {
	t.Helper()
	w := underWay{map[string]string{}}
	start := func(name string, n int, input any, output string) (ids []string) {
		for range n {
			id := a.start(name, input).ID
			w.outputs[id] = output
			ids = append(ids, id)
		}
		return ids
	}
	for _, id := range start("Steps", 5, map[string]int{"steps": 1}, "[1]") {
		a.becomes(id, "Completed")
	}
	waits := start("Waits", 10, nil, `"answered"`)
	asleep := start("Waits", 5, nil, `"answered"`)
	start("Naps", 10, 15, `"awake"`)
	for _, id := range start("ChildWaits", 5, nil, `"child's answer"`) {
		w.outputs[id+"-child"] = ""
		a.becomes(id+"-child", "Running")
	}
	for _, id := range append(waits, asleep...) {
		a.becomes(id, "Running")
	}
	for _, id := range asleep {
		a.post("/api/durabletask/instances/"+id+"/suspend", "", http.StatusAccepted)
		a.becomes(id, "Suspended")
	}
	start("Steps", 10, map[string]int{"steps": 4, "delayMillis": 400}, "[1,4,9,16]") // more than can run at the same time
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the end of the app", a.ended)
	for i := range 5 {
		id := fmt.Sprintf("unstarted-%d", i)
		mustHub(t, root, env, "start", "Steps", "--id", id, "--input", `{"steps":2}`)
		w.outputs[id] = "[1,4]"
	}
	return w
}

// finish completes all instances on another app.
func (w underWay) finish(t *testing.T, a *app) {
	t.Helper()
	for id, output := range w.outputs {
		at := "/api/durabletask/instances/" + id
		switch output {
		case `"answered"`:
			if a.status(at).RuntimeStatus == "Suspended" {
				a.post(at+"/resume", "", http.StatusAccepted)
			}
			a.raise(id, "answered")
		case `"child's answer"`:
			a.raise(id+"-child", "child's answer")
		}
	}
	for id, output := range w.outputs {
		if output != "" {
			a.completed("/api/durabletask/instances/"+id, 2*time.Minute, output)
		}
	}
}

// raise raises the event that Waits waits for.
func (a *app) raise(id, answer string) {
	a.t.Helper()
	if got := a.call(http.MethodPost, "/api/durabletask/instances/"+id+"/raiseEvent/Answer", answer); got.status != http.StatusAccepted {
		a.t.Fatalf("raise an event for %s: %d %s", id, got.status, got.body)
	}
}

func TestHubTool_CopiesRunningInstances(t *testing.T) {
	t.Parallel()
	for i, tt := range []struct{ from, to string }{
		{"embedded", "azurestorage"}, {"azurestorage", "embedded"}, {"embedded", "partitionlog"}, {"partitionlog", "azurestorage"},
	} {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				processtest.SkipInShortRuns(t)
			}
			root := newRoot(t, newHub(), "", func(durableTask map[string]any) { durableTask["maxConcurrentActivityFunctions"] = 2 })
			account := "AzureWebJobsStorage=" + azuritetest.Start(t)
			env := map[string][]string{
				"embedded": nil, "azurestorage": {account},
				"partitionlog": {account, "AzureFunctionsJobHost__extensions__durableTask__storageProvider__type=partitionLog"},
			}
			first := startStandalone(t, e2eApp, root, env[tt.from]...)
			w := fill(t, first, root, env[tt.from])

			var totals struct{ Instances, Activities int }
			printed := mustHub(t, root, []string{account}, "copy", tt.from, tt.to, "--output", "json")
			if err := json.Unmarshal([]byte(printed), &totals); err != nil || totals.Instances != len(w.outputs) || totals.Activities == 0 {
				t.Errorf("copied %s (%v), want %d instances and activities", printed, err, len(w.outputs))
			}
			if got := hubTool(t, root, []string{account}, "copy", tt.from, tt.to); got.code == 0 || !strings.Contains(got.errs, "is not empty") {
				t.Errorf("second copy: %+v, want an error because the target is not empty", got)
			}
			second := startStandalone(t, e2eApp, root, env[tt.to]...)
			w.finish(t, second)
			if tt.to == "embedded" {
				if left, err := filepath.Glob(filepath.Join(root, "*.copying*")); err != nil || len(left) > 0 {
					t.Errorf("left after the failed copy: %v, %v", left, err)
				}
			}
		})
	}
}

func TestHubTool_RefusesToCopyAHubInUse(t *testing.T) {
	t.Parallel()
	account := "AzureWebJobsStorage=" + azuritetest.Start(t)
	root := newRoot(t, newHub(), "", nil)
	a := startStandalone(t, e2eApp, root, account)
	a.completed(a.start("Steps", map[string]int{"steps": 1}).StatusQueryGetURI, 30*time.Second, "[1]")
	got := hubTool(t, root, []string{account}, "copy", "azurestorage", "embedded", "--wait", "1s")
	if got.code != 5 || !strings.Contains(got.errs, "is in use by a worker") {
		t.Errorf("%+v, want exit code 5 and the reason", got)
	}
	if left, err := filepath.Glob(filepath.Join(root, ".durable-*")); err != nil || len(left) > 0 {
		t.Errorf("left after the failed copy: %v, %v", left, err)
	}
	if got := hubTool(t, root, []string{account}, "delete", "--yes"); got.code != 5 || !strings.Contains(got.errs, "is in use by a worker") {
		t.Errorf("delete: %+v, want exit code 5 and the reason", got)
	}
	if _, err := os.Stat(filepath.Join(root, "host.json")); err != nil {
		t.Error(err)
	}
}
