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

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

const welcome = `["Hello, you!","Bonjour, you!","Guten Tag, you!"]`

// newcomer is a new app in its own folder. It uses the module of this checkout instead of a release.
type newcomer struct {
	root, program string
}

// do runs a command in the app's folder. The go command downloads nothing.
func (n newcomer) do(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = n.root, append(environment(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// durableModule is the module path of this checkout.
const durableModule = "github.com/durablefunctions-go/durablefunctions"

// newNewcomer creates and builds a new app.
func newNewcomer(t *testing.T) newcomer {
	t.Helper()
	parent := t.TempDir()
	n := newcomer{filepath.Join(parent, "shop"), filepath.Join(t.TempDir(), "app")}
	newcomer{root: parent}.do(t, binary(t, sampleApp), "-init", n.root)
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	edit := []string{"mod", "edit", "-require=" + durableModule + "@v0.0.0", "-replace=" + durableModule + "=" + checkout}
	n.do(t, "go", append(edit, requirements(t)...)...)
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(n.root, "go.sum"), sums, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.do(t, "go", "build", "-o", n.program, ".")
	return n
}

// requirements returns the `go mod edit` flags that give a module the checkout's requirements and Go version.
// Without them the go command reads the go.mod files of more modules. A module cache that was filled by
// building the checkout does not contain these files.
func requirements(t *testing.T) (flags []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = checkout
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	module := decode[struct {
		Go      string
		Require []struct{ Path, Version string }
	}](t, string(out))
	flags = []string{"-go=" + module.Go}
	for _, r := range module.Require {
		flags = append(flags, "-require="+r.Path+"@"+r.Version)
	}
	return flags
}

func (n newcomer) built() (string, error) { return n.program, nil }

func (a *app) welcomes() {
	a.t.Helper()
	got := a.call(http.MethodPost, "/api/welcome/you", nil)
	if got.status != http.StatusAccepted {
		a.t.Fatalf("%d %s, want 202", got.status, got.body)
	}
	a.completed(decode[checkStatus](a.t, got.body).StatusQueryGetURI, time.Minute, welcome)
}

// The app that -init creates can be built and runs without a storage account.
func TestInit_TheNewAppRunsItsFirstOrchestration(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	t.Run("standalone", func(t *testing.T) { startStandalone(t, n.built, n.root).welcomes() })
	t.Run("below the host", func(t *testing.T) {
		processtest.LeaveToFull(t)
		startHost(t, n.built, n.root).welcomes()
	})
	t.Run("checks", func(t *testing.T) {
		processtest.LeaveToFull(t)
		n.do(t, "go", "vet", ".")
		n.do(t, "go", "mod", "edit", "-tool="+durableModule+"/durable/durablecheck/cmd/durablecheck")
		n.do(t, "go", "tool", "durablecheck", "./...")
	})
}
