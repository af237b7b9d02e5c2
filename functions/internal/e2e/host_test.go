//go:build unix

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// requireFunc skips the test if Core Tools are not on PATH. It fails the test if they are required.
func requireFunc(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("func"); err != nil {
		if azuritetest.Required("func") {
			t.Fatal(err)
		}
		t.Skip("this test needs Azure Functions Core Tools: func is not on PATH")
	}
}

// startHost runs `func start` in root with a program under test as the app.
func startHost(t *testing.T, built func() (string, error), root string) *app {
	t.Helper()
	return startHostAt(t, built, root, "api")
}

// startHostAt is startHost for a host.json with the given route prefix.
func startHostAt(t *testing.T, built func() (string, error), root, prefix string) *app {
	t.Helper()
	a := launchHost(t, built, root, nil)
	management := "/durabletask/instances"
	if prefix != "" {
		management = "/" + prefix + management
	}
	eventually(t, 90*time.Second, "an answer of the app below the host", func() bool {
		if a.ended() {
			t.Fatal("func has ended")
		}
		got, err := a.try(http.MethodGet, management, nil)
		return err == nil && got.status == http.StatusOK
	})
	return a
}

// launchHost runs `func start` and waits until it has listed the functions.
func launchHost(t *testing.T, built func() (string, error), root string, env []string, args ...string) *app {
	t.Helper()
	requireFunc(t)
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary(t, built), filepath.Join(root, "bin", "app")); err != nil {
		t.Fatal(err)
	}
	port, handlerPort := processtest.ReservePort(t), processtest.ReservePort(t)
	p := run(t, root, environment(append(env, portOfTheHandler(handlerPort))...), "func", append([]string{"start", "--port", strconv.Itoa(port)}, args...)...)
	a := &app{p, fmt.Sprintf("http://localhost:%d", port), root}
	p.awaitLog(`: \[[A-Z,]+\] http://localhost|functions: .*http://localhost`, 90*time.Second)
	eventually(t, 30*time.Second, "the handler at its reserved port", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", handlerPort))
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	return a
}

// portOfTheHandler returns the setting of host.json that makes the host give its handler a reserved port. By default
// the host gives it a free port, which another process can take before the handler listens.
func portOfTheHandler(reserved int) string {
	return fmt.Sprintf("AzureFunctionsJobHost__customHandler__port=%d", reserved)
}

// handler returns the process ID of the app below the host.
func (a *app) handler() int {
	a.t.Helper()
	pid := 0
	eventually(a.t, 30*time.Second, "a handler below the host", func() bool {
		out, _ := exec.Command("pgrep", "-P", strconv.Itoa(a.cmd.Process.Pid)).Output() // fails if the process does not exist
		pid, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return pid != 0
	})
	return pid
}

func TestHost_HelloSequenceCompletesAtThePublicOrigin(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	a := startHost(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))

	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)

	if got.status != http.StatusAccepted {
		t.Fatalf("%d %s, want 202", got.status, got.body)
	}
	payload := decode[checkStatus](t, got.body)
	if !strings.HasPrefix(payload.StatusQueryGetURI, a.url+"/api/") {
		t.Errorf("statusQueryGetUri = %q, want a URL of the host, %s/api/…", payload.StatusQueryGetURI, a.url)
	}
	if location := got.header.Get("Location"); location != payload.StatusQueryGetURI {
		t.Errorf("Location = %q, want the statusQueryGetUri, %q", location, payload.StatusQueryGetURI)
	}
	a.completed(payload.StatusQueryGetURI, 30*time.Second, helloOutput)
}

func TestHost_AKilledHandlerIsRestartedAndResumes(t *testing.T) {
	t.Parallel()
	a := startHost(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	trace := filepath.Join(t.TempDir(), "trace")
	started := a.start("Steps", tenSteps(trace))
	awaitStep(t, trace, 4)

	signal(t, a.handler(), "-KILL")

	a.completed(started.StatusQueryGetURI, time.Minute, tenSquares)
	checkTrace(t, trace, 10)
	a.awaitLog(`resuming instance that another process was running.*instanceId=`+started.ID+`.*name=Steps`, time.Second)
}

func TestHost_TheHandlerEndsAfterItsHostIsKilled(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	a := startHost(t, e2eApp, root)
	trace := filepath.Join(t.TempDir(), "trace")
	id := a.start("Steps", tenSteps(trace)).ID
	handler := a.handler()
	awaitStep(t, trace, 4)

	a.kill()

	eventually(t, 5*time.Second, "the orphan's end", func() bool { return !running(handler) })
	next := startStandalone(t, e2eApp, root)
	next.completed("/api/durabletask/instances/"+id, time.Minute, tenSquares)
	checkTrace(t, trace, 10)
}

func signal(t *testing.T, pid int, signal string) {
	t.Helper()
	if out, err := exec.Command("kill", signal, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("kill %s %d: %v\n%s", signal, pid, err, out)
	}
}
