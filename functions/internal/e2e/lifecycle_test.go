//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// post sends a request without a body to a URL of a check-status payload and checks the status code.
func (a *app) post(uri, reason string, want int) answer {
	a.t.Helper()
	got := a.call(http.MethodPost, strings.ReplaceAll(uri, "{text}", url.QueryEscape(reason)), nil)
	if got.status != want {
		a.t.Fatalf("POST %s: %d %s, want %d", uri, got.status, got.body, want)
	}
	return got
}

// becomes waits until an instance has a status.
func (a *app) becomes(id, want string) {
	a.t.Helper()
	eventually(a.t, 30*time.Second, id+" to be "+want, func() bool {
		got := a.call(http.MethodGet, "/api/durabletask/instances/"+id, nil)
		return got.status < 300 && decode[status](a.t, got.body).RuntimeStatus == want
	})
}

func TestStandalone_ASuspendedInstanceWaitsUntilItIsResumed(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	i := a.start("Waits", nil)
	a.becomes(i.ID, "Running")

	a.post(i.SuspendPostURI, "hold", http.StatusAccepted)
	a.becomes(i.ID, "Suspended")
	a.post(i.SuspendPostURI, "twice", http.StatusInternalServerError)
	if got := a.call(http.MethodPost, strings.ReplaceAll(i.SendEventPostURI, "{eventName}", "Answer"), "yes"); got.status != http.StatusAccepted {
		t.Fatalf("raise event: %d %s", got.status, got.body)
	}
	// The effect of the event would be visible by the time at which another instance has received its own
	// event.
	other := a.start("Waits", nil)
	a.call(http.MethodPost, strings.ReplaceAll(other.SendEventPostURI, "{eventName}", "Answer"), "other")
	a.completed(other.StatusQueryGetURI, 30*time.Second, `"other"`)
	if s := a.status(i.StatusQueryGetURI); s.RuntimeStatus != "Suspended" {
		t.Errorf("after the event the status is %s, want Suspended", s.RuntimeStatus)
	}
	a.post(i.ResumePostURI, "on", http.StatusAccepted)
	a.completed(i.StatusQueryGetURI, 30*time.Second, `"yes"`)
	a.post(i.ResumePostURI, "late", http.StatusGone)
}

func TestStandalone_ARecursiveTerminateReachesTheChild(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	i := a.start("ChildWaits", nil)
	a.becomes(i.ID+"-child", "Running")

	a.post("/api/family/"+i.ID+"/terminate", "", http.StatusNoContent)

	for _, id := range []string{i.ID, i.ID + "-child"} {
		a.becomes(id, "Terminated")
	}
}

func TestStandalone_ARewoundInstanceRepeatsTheFailedWork(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	for _, orchestrator := range []string{"NeedsFile", "ChildNeedsFile"} {
		file := filepath.Join(t.TempDir(), "needed")
		i := a.start(orchestrator, file)
		a.becomes(i.ID, "Failed")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}

		a.post(i.RewindPostURI, "mended", http.StatusAccepted)

		a.becomes(i.ID, "Completed")
		a.completed(i.StatusQueryGetURI, 30*time.Second, `"found"`)
		if got := a.post(i.RewindPostURI, "again", http.StatusPreconditionFailed); !strings.Contains(got.body, "Completed") {
			t.Errorf("rewind of a completed instance: %s", got.body)
		}
	}
}

func TestStandalone_RestartsAndPurges(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	first := a.start("Steps", map[string]int{"steps": 2})
	a.completed(first.StatusQueryGetURI, 30*time.Second, "[1,4]")

	fresh := decode[checkStatus](t, a.post(first.RestartPostURI, "", http.StatusAccepted).body)
	if fresh.ID == first.ID {
		t.Errorf("the restarted instance has the same ID")
	}
	a.completed(fresh.StatusQueryGetURI, 30*time.Second, "[1,4]")
	same := decode[checkStatus](t, a.post(first.RestartPostURI+"&restartWithNewInstanceId=false", "", http.StatusAccepted).body)
	if same.ID != first.ID {
		t.Errorf("restarted as %s, want %s", same.ID, first.ID)
	}
	a.completed(same.StatusQueryGetURI, 30*time.Second, "[1,4]")

	live := a.start("Waits", nil)
	a.becomes(live.ID, "Running")
	if got := a.call(http.MethodDelete, live.PurgeHistoryDeleteURI, nil); got.status != http.StatusPreconditionFailed {
		t.Errorf("purge of a running instance: %d %s, want 412", got.status, got.body)
	}
	if got := a.call(http.MethodDelete, first.PurgeHistoryDeleteURI, nil); got.status != http.StatusOK || got.body != `{"instancesDeleted":1}` {
		t.Errorf("purge: %d %s", got.status, got.body)
	}
	if got := a.call(http.MethodGet, first.StatusQueryGetURI, nil); got.status != http.StatusNotFound {
		t.Errorf("after the purge: %d %s, want 404", got.status, got.body)
	}
	many := "/api/durabletask/instances?createdTimeFrom=2020-01-01T00:00:00Z"
	if got := a.call(http.MethodDelete, many, nil); got.status != http.StatusOK || got.body != `{"instancesDeleted":1}` {
		t.Errorf("purge of all ended instances: %d %s", got.status, got.body)
	}
	if got := a.call(http.MethodDelete, many, nil); got.status != http.StatusNotFound {
		t.Errorf("purge without matching instances: %d %s, want 404", got.status, got.body)
	}
	if s := a.status(live.StatusQueryGetURI); s.RuntimeStatus != "Running" {
		t.Errorf("the running instance is %s after the purges", s.RuntimeStatus)
	}
}

// `func durable` changes the storage in the same way as the .NET extension.
func TestHost_FuncDurableRewindsAndPurges(t *testing.T) {
	t.Parallel()
	requireFunc(t)
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	file := filepath.Join(t.TempDir(), "needed")
	failed := a.start("ChildNeedsFile", file)
	a.becomes(failed.ID, "Failed")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	a.cli("rewind", "--id", failed.ID, "--reason", "mended")

	a.becomes(failed.ID, "Completed")
	a.completed(failed.StatusQueryGetURI, 30*time.Second, `"found"`)
	// `func durable` can read an instance that this app has rewound.
	again := filepath.Join(t.TempDir(), "needed too")
	ours := a.start("NeedsFile", again)
	a.becomes(ours.ID, "Failed")
	a.post(ours.RewindPostURI, "in vain", http.StatusAccepted)
	a.becomes(ours.ID, "Failed")
	if history := a.cli("get-history", "--id", ours.ID); !strings.Contains(history, "ExecutionCompleted") {
		t.Errorf("get-history: %s", history)
	}

	live := a.start("Waits", nil)
	a.becomes(live.ID, "Running")
	a.cli("purge-history", "--created-after", "2020-01-01T00:00:00Z", "--runtime-status", "completed")
	for id, want := range map[string]int{
		failed.ID: http.StatusNotFound, failed.ID + "-child": http.StatusNotFound, ours.ID: http.StatusOK, live.ID: http.StatusAccepted,
	} {
		if got := a.call(http.MethodGet, fmt.Sprint("/api/durabletask/instances/", id), nil); got.status != want {
			t.Errorf("after purge-history %s: %d %s, want %d", id, got.status, got.body, want)
		}
	}
}
