//go:build unix

package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const welcome = `["Hello, you!","Bonjour, you!","Guten Tag, you!"]`

// newcomer is a new app in a folder of its own, and a way to build it. Its
// module is this checkout instead of a release.
func newcomer(t *testing.T) (root string, built func() (string, error)) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "shop")
	do := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = root, append(environment(), "GOFLAGS=-mod=mod", "GOWORK=off")
		if name != "go" {
			cmd.Dir = ""
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	do(binary(t, sampleApp), "-init", root)
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/durablefunctions-go/durablefunctions"
	do("go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+checkout)
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "go.sum"), sums, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "app")
	do("go", "build", "-o", program, ".")
	do("go", "vet", ".")
	do("go", "mod", "edit", "-tool="+module+"/durable/durablecheck/cmd/durablecheck")
	do("go", "mod", "tidy")
	do("go", "tool", "durablecheck", "./...")
	return root, func() (string, error) { return program, nil }
}

func (a *app) welcomes() {
	a.t.Helper()
	got := a.call(http.MethodPost, "/api/welcome/you", nil)
	if got.status != http.StatusAccepted {
		a.t.Fatalf("%d %s, want 202", got.status, got.body)
	}
	a.completed(decode[checkStatus](a.t, got.body).StatusQueryGetURI, time.Minute, welcome)
}

// What -init writes builds and runs, with no storage at all.
func TestInit_TheNewAppRunsItsFirstOrchestration(t *testing.T) {
	t.Parallel()
	began := time.Now()
	root, built := newcomer(t)
	made := time.Now()
	t.Run("standalone", func(t *testing.T) { startStandalone(t, built, root).welcomes() })
	t.Run("below the host", func(t *testing.T) {
		started := time.Now()
		startHost(t, built, root).welcomes()
		// What a newcomer types: -init, go build, func start, and a request.
		t.Logf("4 commands, from nothing to the first completed orchestration: %v, of which writing and building the app took %v",
			(made.Sub(began) + time.Since(started)).Round(100*time.Millisecond), made.Sub(began).Round(100*time.Millisecond))
	})
}
