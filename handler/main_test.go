//go:build unix

package handler

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// childRole is the variable that selects another role of the test program. For example, "app" runs
// Main, and "host" starts an app like the Functions host and waits.
const childRole = "HANDLER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(childRole) {
	case "app":
		Main(App{})
	case "crasher":
		runCrasher()
	case "full disk":
		runOnFullDisk()
	case "host":
		app := exec.Command(os.Args[0])
		app.Env = append(os.Environ(), childRole+"=app")
		app.Stdout, app.Stderr = os.Stdout, os.Stderr
		if err := app.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", app.Process.Pid)
		_ = app.Wait()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command returns the test program in a role, in a folder with the given host.json. It inherits no
// settings from this process.
func command(t *testing.T, role, hostJSON string, environ ...string) *exec.Cmd {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, settings.HostJSONFile), []byte(hostJSON), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Dir = root
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "TMPDIR=" + os.TempDir(), childRole + "=" + role}, environ...)
	cmd.Stderr = t.Output()
	return cmd
}

// A process is the test program in a role. A failed test shows the end of its log.
type process struct {
	*testing.T
	cmd    *exec.Cmd
	stdout io.ReadCloser
	out    *bufio.Reader // reads stdout
}

// program starts the test program in a role.
func program(t *testing.T, role, hostJSON string, environ ...string) *process {
	t.Helper()
	return launch(t, command(t, role, hostJSON, environ...))
}

// launch starts a command. It ends with the test.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := &process{t, cmd, pipe, bufio.NewReader(io.TeeReader(pipe, &log))}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		if t.Failed() {
			_ = pipe.(*os.File).SetReadDeadline(time.Now().Add(time.Second)) // a child may keep the pipe open
			_, _ = io.Copy(io.Discard, p.out)
			t.Logf("the log of process %d ends with:\n%s", cmd.Process.Pid, processtest.LastLines(log.String()))
		}
		_ = cmd.Wait() // the test may have called it already
	})
	return p
}

// limited calls f. It kills the process if f takes too long, so that f returns.
func (p *process) limited(f func()) {
	p.Helper()
	limit := patience.Limit()
	timer := time.AfterFunc(limit, func() {
		p.Logf("killed process %d, for which the test waited %v", p.cmd.Process.Pid, limit)
		_ = p.cmd.Process.Kill()
	})
	defer timer.Stop()
	f()
}

// lineWith reads lines until one contains text.
func (p *process) lineWith(text string) string {
	p.Helper()
	var line string
	var err error
	p.limited(func() {
		for err == nil {
			if line, err = p.out.ReadString('\n'); strings.Contains(line, text) {
				return
			}
		}
	})
	if err != nil && !strings.Contains(line, text) {
		p.Fatalf("no line with %q", text)
	}
	return line
}

// rest reads lines until the process closes its standard output.
func (p *process) rest() string {
	p.Helper()
	var text []byte
	p.limited(func() { text, _ = io.ReadAll(p.out) }) // the exit code shows whether it succeeded
	return string(text)
}

// wait waits until the process ends. The error is nil after exit code 0.
func (p *process) wait() (err error) {
	p.Helper()
	p.limited(func() { err = p.cmd.Wait() })
	return err
}

// signal sends a signal to the process.
func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// addressIn returns the URL in a log line.
func addressIn(t *testing.T, line string) string {
	t.Helper()
	_, rest, _ := strings.Cut(line, "address=")
	address, _, ok := strings.Cut(rest, " ")
	if !ok {
		t.Fatalf("no address in %q", line)
	}
	return address
}

// deadStorage returns a connection to a port on which no process listens.
func deadStorage(t *testing.T) string {
	t.Helper()
	at := "http://127.0.0.1:" + reservedPort(t) + "/a"
	return "AzureWebJobsStorage=AccountName=a;AccountKey=eA==;BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";TableEndpoint=" + at
}

func TestMain_StopsOnSIGTERMWithCode0(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := program(t, "app", "{}", "PORT=0", deadStorage(t))
		base := addressIn(t, p.lineWith("msg=listening"))
		if code, _ := get(t, base+"/"); code != http.StatusOK {
			t.Errorf("/ is answered with %d", code)
		}
		p.signal(signal)
		p.lineWith("msg=stopping reason=\"" + signal.String())
		p.lineWith("msg=stopped")
		if err := p.wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0", signal, err)
		}
	}
}

// The Functions host logs a line of standard error as an error, or as a warning if it contains "warn".
// It logs standard output as information (azure-functions-host:
// Workers/ProcessManagement/WorkerProcess.cs).
func TestMain_BehindTheHostWarningsAndErrorsGoToStandardError(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		p, errs := programWithErrors(t, "{", "FUNCTIONS_CUSTOMHANDLER_PORT="+reservedPort(t), "DURABLE_LOG_LEVEL=loud", "DURABLE_LOG_FORMAT="+format, deadStorage(t))
		p.lineWith("listening")
		p.signal(syscall.SIGTERM)
		p.lineWith("stopped")
		if err := p.wait(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"WARN", "DURABLE_LOG_LEVEL is", "ERROR"} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: standard error lacks %q: %s", format, want, errs)
			}
		}
		if strings.Contains(errs.String(), "INFO") {
			t.Errorf("%s: standard error has %s", format, errs)
		}
	}
}

// A standalone program writes its whole log to standard output.
func TestMain_LogsNothingToStandardError(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		p, errs := programWithErrors(t, "{", "PORT=0", "DURABLE_LOG_LEVEL=debug", "DURABLE_LOG_FORMAT="+format, deadStorage(t))
		p.lineWith("listening")
		p.lineWith("ERROR") // host.json is not valid
		p.signal(syscall.SIGTERM)
		p.lineWith("stopped")
		if err := p.wait(); err != nil || errs.Len() > 0 {
			t.Errorf("%s: %v, standard error has %q", format, err, errs)
		}
	}
}

// programWithErrors starts an app and captures its standard error.
func programWithErrors(t *testing.T, hostJSON string, environ ...string) (*process, *bytes.Buffer) {
	t.Helper()
	cmd := command(t, "app", hostJSON, environ...)
	errs := new(bytes.Buffer)
	cmd.Stderr = errs
	return launch(t, cmd), errs
}

func TestMain_WrongConfigurationDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, hostJSON, setting, want string }{
		{
			"a bad value", `{"extensions": {"durableTask": {"storageProvider": {"partitionCount": 99}}}}`, "AzureWebJobsStorage=UseDevelopmentStorage=true",
			"extensions.durableTask.storageProvider.partitionCount is 99; want a whole number from 1 to 16 (host.json line 1)",
		},
		{"no JSON", "{", "AzureWebJobsStorage=UseDevelopmentStorage=true", "host.json line 1: the file ends before the end of its object"},
		{"no connection", durableTaskJSON(`"storageProvider": {"type": "AzureStorage"}`), "X=", "set one of the settings AzureWebJobsStorage"},
	} {
		p := program(t, "app", tt.hostJSON, "PORT=0", tt.setting)
		base := addressIn(t, p.lineWith("msg=listening"))
		if logged := p.lineWith("level=ERROR"); !strings.Contains(logged, tt.want) {
			t.Errorf("%s: the log says %s, want %s", tt.name, logged, tt.want)
		}
		if code, body := get(t, base+"/api/durabletask/instances"); code != http.StatusServiceUnavailable || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want 503 with %s", tt.name, code, body, tt.want)
		}
	}
}

func TestMain_AnInvalidPortEndsTheProgram(t *testing.T) {
	t.Parallel()
	p := program(t, "app", "{}", "PORT=eighty")
	p.rest()
	if err := p.wait(); err == nil || p.cmd.ProcessState.ExitCode() != exitNoConfig {
		t.Errorf("%v, want exit code %d", err, exitNoConfig)
	}
}

// Covers variables that are read only at the start of a program.
func TestMain_EachVariableHasItsEffect(t *testing.T) {
	t.Parallel()
	logged := func(environ ...string) string {
		p := program(t, "app", "{}", append([]string{"PORT=0", deadStorage(t)}, environ...)...)
		first := p.lineWith("listening")
		p.signal(syscall.SIGTERM)
		return first + p.rest()
	}
	without := logged()
	for variable, e := range programEffects {
		value, expression := e.value, e.logged
		if variable == "PORT" { // another port may be in use
			value = reservedPort(t)
			expression = strings.ReplaceAll(expression, e.value, value)
		}
		says := regexp.MustCompile(expression)
		if with := logged(variable + "=" + value); !says.MatchString(with) || says.MatchString(without) {
			t.Errorf("%s=%s: want %s, but not without it:\n%s\nwithout:\n%s", variable, value, expression, with, without)
		}
	}
}

// A standalone program reads local.settings.json itself. Behind Core Tools `func start` reads it.
func TestMain_StandaloneReadsLocalSettings(t *testing.T) {
	t.Parallel()
	run := func(environ ...string) string {
		root := t.TempDir()
		for name, text := range map[string]string{
			settings.HostJSONFile:      `{"extensions": {"durableTask": {"hubName": "%HUB%"}}}`,
			settings.LocalSettingsFile: `{"IsEncrypted": false, "Values": {"HUB": "LocalHub", "PORT": "0", "AzureWebJobsStorage": "UseDevelopmentStorage=true",},}`,
		} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return program(t, "app", "{}", append(environ, "FUNCTIONS_APP_ROOT_PATH="+root)...).lineWith("msg=listening")
	}
	if line := run(); !strings.Contains(line, "taskHub=LocalHub") || strings.Contains(line, ":8080") {
		t.Errorf("the log says %s", line)
	}
	if line := run("HUB=ExistingWins"); !strings.Contains(line, "taskHub=ExistingWins") {
		t.Errorf("the log says %s", line)
	}
}

// On Linux a handler outlives a killed host (azure-functions-host: EmptyProcessRegistry.cs).
func TestMain_EndsByItselfWhenTheHostIsKilled(t *testing.T) {
	t.Parallel()
	port := reservedPort(t)
	host := program(t, "host", "{}", "FUNCTIONS_CUSTOMHANDLER_PORT="+port, deadStorage(t))
	var child int
	if _, err := fmt.Sscanf(host.lineWith("child "), "child %d", &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	host.lineWith(`mode="Functions host"`)
	if code, _ := get(t, "http://127.0.0.1:"+port+"/"); code != http.StatusOK {
		t.Errorf("/ is answered with %d", code)
	}
	host.signal(syscall.SIGKILL)
	host.lineWith(`msg=stopping reason="the parent process, the Functions host, has died"`)
	host.lineWith("msg=stopped")
	patience.Until(t, "the handler ends", func() bool { return syscall.Kill(child, 0) != nil || isZombie(child) })
}

// isZombie reports whether a process has ended but was not reaped. In a container without an init
// process, orphans stay in this state.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

// After the host is killed, the output pipe of the handler is broken. A write must not end the handler
// before it has released its leases.
func TestMain_ABrokenOutputPipeDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	p := program(t, "app", "{}", "PORT=0", deadStorage(t))
	p.lineWith("msg=listening")
	_ = p.stdout.Close()
	p.signal(syscall.SIGTERM) // it logs that it stops
	if err := p.wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
}

// reservedPort returns a port that no other process gets.
func reservedPort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(processtest.ReservePort(t))
}

// The command prints only errors and no log.
func TestHubTool_PrintsErrorsWithoutALog(t *testing.T) {
	t.Parallel()
	cmd := command(t, "app", durableTaskJSON(`"storageProvider": {"type": "AzureStorage"}`),
		"AzureWebJobsStorage=DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a;"+
			"QueueEndpoint=http://127.0.0.1:1/a;TableEndpoint=http://127.0.0.1:1/a")
	cmd.Args = append(cmd.Args, "hub", "terminate", "one")
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run() // the exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != hubcli.ExitUnavailable || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), " hub terminate: ") {
		t.Errorf("exit code %d with %s", code, errs.String())
	}
}

func TestHubTool_EndsOnASignalWhileItReadsItsInput(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := command(t, "app", "{}")
		cmd.Args = append(cmd.Args, "hub", "start", "Hello", "--input-file", "-")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p := launch(t, cmd)
		// The program handles signals once it reads: the pipe holds only a part of the text.
		p.limited(func() { _, err = stdin.Write(make([]byte, 1<<20)) })
		if err != nil {
			t.Fatal(err)
		}
		p.signal(signal)
		_ = p.wait() // the exit code is checked below
		if code := cmd.ProcessState.ExitCode(); code != hubcli.ExitFailed {
			t.Errorf("%v: %v, want exit code %d", signal, cmd.ProcessState, hubcli.ExitFailed)
		}
	}
}

// A command that cannot react to a signal waits for a file. The first signal has no effect.
func TestHubTool_EndsAtTheSecondSignal(t *testing.T) {
	t.Parallel()
	cmd := command(t, "app", "{}")
	cmd.Args = append(cmd.Args, "hub", "list")
	pipe := filepath.Join(cmd.Dir, settings.LocalSettingsFile)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, cmd)
	patience.Until(t, "the command opens its settings", func() bool {
		writer, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			t.Cleanup(func() { _ = writer.Close() })
		}
		return err == nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the state has the signal
	}()
	patience.Until(t, "the command ends", func() bool {
		_ = cmd.Process.Signal(os.Interrupt) // it fails after the end of the process
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		t.Errorf("the command ended with %v, want the signal", cmd.ProcessState)
	}
}
