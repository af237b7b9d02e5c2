//go:build unix

package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// checkout is the path of the repository's root.
var checkout = filepath.Join("..", "..", "..")

// binaries is the folder with the programs under test. TestMain removes it.
var binaries string

// TestMain allows more parallel tests than there are processors, because parallel tests mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("6") // a number in range
	}
	os.Exit(func() int {
		var err error
		if binaries, err = os.MkdirTemp("", "durable-e2e-*"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(binaries)
		defer browsertest.Stop()
		return m.Run()
	}())
}

// The programs under test. They are built once, with the race detector if the tests have it; a detected race
// fails the test that caused it.
var (
	sampleApp = sync.OnceValues(func() (string, error) { return build("sample", "../..") })
	e2eApp    = sync.OnceValues(func() (string, error) { return build("e2eapp", "../e2eapp") })
)

func build(name, pkg string) (string, error) {
	path := filepath.Join(binaries, name)
	if out, err := exec.Command("go", append(compile("build"), "-o", path, pkg)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// compile returns the arguments of a go command that compiles with the race detector if the tests have it.
func compile(verb string) []string {
	if raceEnabled {
		return []string{verb, "-race"}
	}
	return []string{verb}
}

func binary(t *testing.T, built func() (string, error)) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// program is a process that a test started, in its own process group.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended

	mu     sync.Mutex // guards the fields below
	output bytes.Buffer
	scan   int // offset at which awaitLog continues
}

// guarded is a shell script that replaces itself by a command. A background process kills the whole process
// group when descriptor 3 is closed, at the latest when the test process has ended. It is no child of the
// command.
const guarded = `({ cat <&3; kill -9 -$$; } >/dev/null 2>&1 &); exec 3<&-; exec "$@"`

// run starts a program in dir. At the end of the test, the program and its descendants are killed, and the
// output is logged if the test has failed.
func run(t *testing.T, dir string, env []string, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command("sh", append([]string{"-c", guarded, "sh", name}, args...)...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 10 * time.Second
	guard, alive, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.ExtraFiles = []*os.File{guard}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard.Close()
	go func() { // ends with the process; kill waits for it
		_ = p.cmd.Wait() // the output is more informative
		close(p.done)
	}()
	t.Cleanup(func() {
		p.killGroup()
		alive.Close()
		if strings.Contains(p.log(), "WARNING: DATA RACE") {
			t.Error("the race detector reported a race")
		}
		if t.Failed() {
			log := polled.ReplaceAllString(p.log(), "")
			t.Logf("end of the output of %s (process %d):\n%s", filepath.Base(name), p.cmd.Process.Pid, processtest.LastLines(log))
		}
	})
	return p
}

// polled matches log lines of the Functions host about successful requests that it passes to the app. Tests
// that poll cause many such lines.
var polled = regexp.MustCompile(`(?m)^\S+ (Executing|Executed) 'Functions\.\S+' \((Reason='This function was prog|Succeeded).*\n`)

// Write appends to the program's output.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// awaitLog waits until the output matches pattern. It searches after the previous match. It returns the match
// and its groups.
func (p *program) awaitLog(pattern string, timeout time.Duration) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(p.t, timeout, "output that matches "+pattern, func() bool {
		ended := p.ended()
		p.mu.Lock()
		defer p.mu.Unlock()
		text := p.output.String()[p.scan:]
		at := re.FindStringSubmatchIndex(text)
		if at == nil && ended {
			p.t.Fatalf("the program has ended without output that matches %s", pattern)
		}
		if at == nil {
			return false
		}
		found = re.FindStringSubmatch(text)
		p.scan += at[1]
		return true
	})
	return found
}

// kill ends the process like kill -9, but not its descendants.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *program) killGroup() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// eventually polls until holds returns true. The work runs in other processes, so the test cannot wait for a
// signal.
//
// takes is the time that leases and timers need on any machine. The limit is much longer: [patience.MaxWait]
// is added for slow machines.
func eventually(t *testing.T, takes time.Duration, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	paced := func() bool { // limits the cost of polling
		if holds() {
			return true
		}
		time.Sleep(min(max(time.Since(began)/20, 50*time.Millisecond), 500*time.Millisecond))
		return false
	}
	for time.Since(began) < takes {
		if paced() {
			return
		}
	}
	patience.Until(t, what, paced)
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	out, _ := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output() // fails if the process does not exist
	stat := strings.TrimSpace(string(out))
	return stat != "" && !strings.HasPrefix(stat, "Z")
}

// environment returns this process's environment with the given variables. It omits variables that a
// developer may have set for the app.
func environment(variables ...string) []string {
	// By default a program with the race detector sleeps for a second before it exits.
	env := []string{"GORACE=atexit_sleep_ms=0"}
	env = append(env, slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, prefix := range []string{"AzureWebJobs", "AzureFunctionsJobHost__", "FUNCTIONS_", "WEBSITE_", "PORT=", "CONTAINER_NAME=", "DURABLE_LOG_LEVEL="} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	})...)
	return append(env, variables...)
}
