//go:build unix

package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

func TestStandalone_NeedsNoStorage(t *testing.T) {
	t.Parallel()
	hub := newHub()
	root := newRoot(t, hub, "", nil)
	a := startStandalone(t, e2eApp, root)
	started := a.start("Steps", map[string]int{"steps": 3})
	a.completed(started.StatusQueryGetURI, 30*time.Second, "[1,4,9]")
	file := filepath.Join(root, ".durable-"+hub+".db")
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	for _, want := range []string{file, "set the connection AzureWebJobsStorage"} {
		if !strings.Contains(a.log(), want) {
			t.Errorf("the log does not contain %s", want)
		}
	}
}

func TestStandalone_AKilledAppResumesFromItsFile(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), "", nil)
	a := startStandalone(t, e2eApp, root)
	trace := filepath.Join(t.TempDir(), "trace")
	id := a.start("Steps", tenSteps(trace)).ID
	awaitStep(t, trace, 4)

	a.kill()

	next := startStandalone(t, e2eApp, root)
	next.completed("/api/durabletask/instances/"+id, time.Minute, tenSquares)
	checkTrace(t, trace, 10)
}

func TestStandalone_ASecondAppWaitsForTheFileAndResumes(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), "", nil)
	first := startStandalone(t, e2eApp, root)
	id := first.start("Waits", nil).ID
	first.becomes(id, "Running")
	second := launchStandalone(t, e2eApp, root)
	var refused answer
	eventually(t, 60*time.Second, "the second app to report the owner of the file", func() bool {
		refused = second.call(http.MethodGet, "/api/durabletask/instances/"+id, nil)
		return refused.status == http.StatusServiceUnavailable && strings.Contains(refused.body, "is in use by process ")
	})

	first.kill()

	eventually(t, 60*time.Second, "the second app to serve", func() bool {
		got := second.call(http.MethodPost, "/api/durabletask/instances/"+id+"/raiseEvent/Answer", "yes")
		return got.status == http.StatusAccepted
	})
	second.completed("/api/durabletask/instances/"+id, 30*time.Second, `"yes"`)
}

func TestHost_NeedsNoStorage(t *testing.T) {
	t.Parallel()
	hub := newHub()
	root := newRoot(t, hub, "", nil)
	a := startHost(t, sampleApp, root)
	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)
	if got.status != http.StatusAccepted {
		t.Fatalf("%d %s, want 202", got.status, got.body)
	}
	a.completed(decode[checkStatus](t, got.body).StatusQueryGetURI, 30*time.Second, helloOutput)
	if _, err := os.Stat(filepath.Join(root, ".durable-"+hub+".db")); err != nil {
		t.Error(err)
	}
	if got := mustHub(t, root, nil, "list"); !strings.Contains(got, "\tE1_HelloSequence\tCompleted\t") {
		t.Errorf("hub list, through the app below the host, printed %s", got)
	}
	if strings.Contains(a.log(), "Host configuration file reading has changed") || strings.Contains(a.log(), "Restarting host") {
		t.Error("the host was restarted")
	}
}

// The host restarts the program when host.json changes. The previous process may live a moment longer and
// still have the file.
func TestHost_ARestartedHandlerResumesFromItsFile(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	root := newRoot(t, newHub(), "", nil)
	a := startHost(t, e2eApp, root)
	trace := filepath.Join(t.TempDir(), "trace")
	started := a.start("Steps", tenSteps(trace))
	awaitStep(t, trace, 3)
	before := a.handler()

	text, err := os.ReadFile(filepath.Join(root, "host.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "host.json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, 2*time.Minute, "a new handler", func() bool { return !running(before) && a.handler() != before })
	a.completed(started.StatusQueryGetURI, 2*time.Minute, tenSquares)
	checkTrace(t, trace, 10)
}
