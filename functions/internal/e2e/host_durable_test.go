//go:build unix

package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"github.com/google/go-cmp/cmp"
)

// cli runs `func durable` in the app's root and returns its output. Its client is an old
// DurableTask.AzureStorage that accesses the storage directly. It writes Base64 and older message formats.
func (a *app) cli(args ...string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "func", append([]string{"durable"}, args...)...)
	cmd.Dir, cmd.Env = a.root, environment()
	out, err := cmd.Output()
	if err != nil {
		a.t.Fatalf("func durable %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// cliState is the state of an instance in the output of `func durable`.
type cliState struct {
	Name                  string
	OrchestrationStatus   int
	Status, Input, Output *string
	OrchestrationInstance struct{ InstanceID, ExecutionID string }
}

// Values of OrchestrationStatus.
const (
	statusRunning    = 0
	statusCompleted  = 1
	statusTerminated = 5
)

func (a *app) cliState(id string) cliState {
	a.t.Helper()
	out := a.cli("get-runtime-status", "--id", id, "--show-input", "true", "--show-output", "true")
	return decode[cliState](a.t, jsonIn(out))
}

// jsonIn returns the JSON part of the output of `func durable`.
func jsonIn(out string) string {
	begin, end := strings.IndexAny(out, "{["), strings.LastIndexAny(out, "}]")
	if begin < 0 || end < begin {
		return out
	}
	return out[begin : end+1]
}

func TestHost_FuncDurableWorksOnTheHub(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	a := startHost(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	payload := filepath.Join(a.root, "answer.json")
	writeJSON(t, payload, "yes")

	a.cli("start-new", "--function-name", "Waits", "--id", "cli-1")
	eventually(t, 30*time.Second, "the instance to run", func() bool {
		return a.status("/api/durabletask/instances/cli-1").RuntimeStatus == "Running"
	})
	got := a.cliState("cli-1")
	if got.Name != "Waits" || got.OrchestrationStatus != statusRunning || got.OrchestrationInstance.InstanceID != "cli-1" {
		t.Errorf("get-runtime-status: %+v, want Waits with status running", got)
	}
	if got.Status == nil || !strings.Contains(*got.Status, "waiting for an answer") {
		t.Errorf("get-runtime-status: custom status %v, want the status that was set", got.Status)
	}

	a.cli("raise-event", "--id", "cli-1", "--event-name", "Answer", "--event-data", "@"+payload)
	a.completed("/api/durabletask/instances/cli-1", 30*time.Second, `"yes"`)
	if got := a.cliState("cli-1"); got.OrchestrationStatus != statusCompleted || got.Output == nil || *got.Output != `"yes"` {
		t.Errorf("get-runtime-status: %+v, want completed with yes", got)
	}

	var events []struct{ EventType json.RawMessage }
	if err := json.Unmarshal([]byte(jsonIn(a.cli("get-history", "--id", "cli-1"))), &events); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range events {
		types = append(types, strings.Trim(string(e.EventType), `"`))
	}
	want := []string{
		"OrchestratorStarted", "ExecutionStarted", "OrchestratorCompleted",
		"OrchestratorStarted", "EventRaised", "ExecutionCompleted", "OrchestratorCompleted",
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("get-history (-want +got):\n%s", diff)
	}

	a.cli("start-new", "--function-name", "Waits", "--id", "cli-2")
	eventually(t, 30*time.Second, "the second instance to run", func() bool {
		return a.status("/api/durabletask/instances/cli-2").RuntimeStatus == "Running"
	})
	if out := a.cli("terminate", "--id", "cli-2", "--reason", "enough"); !strings.Contains(out, "Successfully terminated") {
		t.Errorf("terminate printed %q", out)
	}
	if s := a.await("/api/durabletask/instances/cli-2", 30*time.Second); s.RuntimeStatus != "Terminated" || string(s.Output) != `"enough"` {
		t.Errorf("%s with output %s, want Terminated with the reason", s.RuntimeStatus, s.Output)
	}
	if got := a.cliState("cli-2"); got.OrchestrationStatus != statusTerminated {
		t.Errorf("get-runtime-status: %+v, want terminated", got)
	}

	// `func durable` also finds instances that this app has started.
	started := a.start("Steps", map[string]int{"steps": 2})
	a.completed(started.StatusQueryGetURI, 30*time.Second, "[1,4]")
	var ids []string
	list, _, _ := strings.Cut(a.cli("get-instances"), "Continuation token")
	for _, s := range decode[[]cliState](t, jsonIn(list)) {
		ids = append(ids, s.OrchestrationInstance.InstanceID)
	}
	slices.Sort(ids)
	wantIDs := []string{"cli-1", "cli-2", started.ID}
	slices.Sort(wantIDs)
	if diff := cmp.Diff(wantIDs, ids); diff != "" {
		t.Errorf("get-instances (-want +got):\n%s", diff)
	}
}
