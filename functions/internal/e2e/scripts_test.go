//go:build unix

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// startScript serializes the tests that run scripts/start, which builds bin/app.
var startScript sync.Mutex

func TestScripts_StartRunsTheAppUntilItIsStopped(t *testing.T) {
	t.Parallel()
	startScript.Lock()
	defer startScript.Unlock()
	t.Run("standalone", func(t *testing.T) {
		processtest.SkipInShortRuns(t)
		testStart(t, pathWithoutFunc(), "mode=standalone", "AzureWebJobsStorage="+azuritetest.Start(t))
	})
	t.Run("below the host", func(t *testing.T) {
		processtest.SkipInShortRuns(t)
		requireFunc(t)
		testStart(t, os.Getenv("PATH"), `mode="Functions host"`, "AzureWebJobsStorage="+azuritetest.Start(t))
	})
	t.Run("standalone without storage", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "hub.db")
		testStart(t, pathWithoutFunc(), file, "AzureFunctionsJobHost__extensions__durableTask__storageProvider__path="+file)
	})
	t.Run("below the host without storage", func(t *testing.T) {
		requireFunc(t)
		file := filepath.Join(t.TempDir(), "hub.db")
		testStart(t, os.Getenv("PATH"), file, "AzureFunctionsJobHost__extensions__durableTask__storageProvider__path="+file)
	})
}

// firstBuild is a time in which scripts/start has built the app. It compiles all packages if the build cache is empty.
const firstBuild = 10 * time.Minute

// The script must not mistake the responses of another program for the app's.
func TestScripts_StartRefusesAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	startScript.Lock()
	defer startScript.Unlock()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:forbidigo // the port stays taken
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	p := run(t, "/", environment("PATH="+pathWithoutFunc(), fmt.Sprintf("PORT=%d", port)), script(t, "start"))
	eventually(t, firstBuild, "the end of scripts/start", p.ended)
	if log := p.log(); !strings.Contains(log, fmt.Sprintf("another program listens on port %d", port)) || strings.Contains(log, "The app listens") {
		t.Errorf("unexpected log: %s", log)
	}
}

func testStart(t *testing.T, path, wantLog, storage string) {
	t.Helper()
	port := processtest.ReservePort(t)
	env := environment(
		"PATH="+path,
		fmt.Sprintf("PORT=%d", port),
		portOfTheHandler(processtest.ReservePort(t)),
		storage,
		"AzureFunctionsJobHost__extensions__durableTask__hubName="+newHub(),
	)
	a := &app{run(t, "/", env, script(t, "start")), fmt.Sprintf("http://localhost:%d", port), ""}
	curl := a.awaitLog(`curl -i -X POST (http://localhost:\d+/api/orchestrators/E1_HelloSequence)`, firstBuild)
	var started answer
	eventually(t, 60*time.Second, "a start to be accepted", func() bool {
		started = a.call(http.MethodPost, curl[1], nil)
		return started.status == http.StatusAccepted
	})
	a.completed(decode[checkStatus](t, started.body).StatusQueryGetURI, 30*time.Second, helloOutput)

	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	eventually(t, 20*time.Second, "the end of scripts/start", a.ended)
	if _, err := a.try(http.MethodGet, "/", nil); err == nil {
		t.Error("a process still listens on the port")
	}
	for _, want := range []string{wantLog, "msg=stopping", "msg=stopped"} {
		if !strings.Contains(a.log(), want) {
			t.Errorf("the log does not contain %s", want)
		}
	}
}

// script returns the path of one of the repository's scripts.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(checkout, "scripts", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func pathWithoutFunc() string {
	return strings.Join(slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "func"))
		return err == nil
	}), string(filepath.ListSeparator))
}

// fakeGo is a go command that downloads two modules and compiles PACKAGES packages. It then ends with the code RESULT.
const fakeGo = `#!/bin/sh
case $1 in
  list) seq 130; exit ;;
esac
echo "go: downloading example.com/one v1.0.0" >&2
echo "go: downloading example.com/two v1.0.0" >&2
i=0
while [ $i -lt "$PACKAGES" ]; do i=$((i + 1)); echo "example.com/p$i" >&2; done
if [ "$RESULT" != 0 ]; then printf '# example.com/app\n\tx.go:1:2: undefined: x\n' >&2; exit "$RESULT"; fi
mkdir -p bin && printf '#!/bin/sh\necho "app $*"\n' >bin/app && chmod +x bin/app
`

func TestScripts_BuildShowsItsProgress(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(script(t, "build"))
	if err != nil {
		t.Fatal(err)
	}
	const downloads = "go: downloading example.com/one v1.0.0\ngo: downloading example.com/two v1.0.0\n"
	for _, c := range []struct {
		packages, result int
		want             string
	}{
		{1, 0, downloads + "app -write-functions .\n"},
		{120, 0, downloads + "compiled 50 of at most 130 packages\ncompiled 100 of at most 130 packages\napp -write-functions .\n"},
		{1, 3, downloads + "# example.com/app\n\tx.go:1:2: undefined: x\n"},
	} {
		root := t.TempDir()
		for name, content := range map[string]string{"scripts/build": string(text), "tools/go": fakeGo} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		p := run(t, root, environment("PATH="+filepath.Join(root, "tools")+":"+os.Getenv("PATH"),
			fmt.Sprintf("PACKAGES=%d", c.packages), fmt.Sprintf("RESULT=%d", c.result)), filepath.Join(root, "scripts", "build"))
		eventually(t, time.Minute, "the end of scripts/build", p.ended)
		if p.log() != c.want || p.cmd.ProcessState.ExitCode() != c.result {
			t.Errorf("%d packages: exit code %d, output %q; want %d, %q", c.packages, p.cmd.ProcessState.ExitCode(), p.log(), c.result, c.want)
		}
	}
}
