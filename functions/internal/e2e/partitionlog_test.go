//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// inPartitionLogs configures a hub in partition logs.
func inPartitionLogs(durableTask map[string]any) {
	durableTask["storageProvider"] = map[string]any{"type": "partitionLog"}
}

func TestStandalone_AHubInPartitionLogsResumesAfterARestart(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), inPartitionLogs)
	a := startStandalone(t, e2eApp, root)
	a.completed(a.start("Steps", map[string]int{"steps": 3}).StatusQueryGetURI, 30*time.Second, "[1,4,9]")
	id := a.start("Waits", nil).ID
	a.becomes(id, "Running")
	if got := a.call(http.MethodPost, "/api/durabletask/orchestrators/Waits/"+id, nil); got.status != http.StatusConflict {
		t.Errorf("start of an existing instance: %d %s, want 409", got.status, got.body)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the end of the app", a.ended)

	next := startStandalone(t, e2eApp, root)
	if got := mustHub(t, root, nil, "list"); !strings.Contains(got, id+"\tWaits\tRunning") {
		t.Errorf("list printed %s", got)
	}
	if got := mustHub(t, root, nil, "why", id); !strings.Contains(got, "Answer") {
		t.Errorf("why printed %s", got)
	}
	mustHub(t, root, nil, "verify")
	mustHub(t, root, nil, "terminate", id, "--reason", "enough")
	if s := next.await("/api/durabletask/instances/"+id, 30*time.Second); s.RuntimeStatus != "Terminated" {
		t.Errorf("%s, want Terminated", s.RuntimeStatus)
	}
	mustHub(t, root, nil, "purge", id)
	if got := hubTool(t, root, nil, "get", id); got.code != 3 {
		t.Errorf("get of a purged instance: %+v, want exit code 3", got)
	}
	if got := hubTool(t, root, nil, "delete", "--yes"); got.code != 5 || !strings.Contains(got.errs, "is in use by a worker") {
		t.Errorf("delete of a hub in use: %+v, want exit code 5 and the reason", got)
	}
	if got := hubTool(t, root, nil, "compact"); got.code != 5 || !strings.Contains(got.errs, "stop the workers first") {
		t.Errorf("compact of a hub in use: %+v, want exit code 5 and the action", got)
	}
}
