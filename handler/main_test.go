//go:build unix

package handler

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
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

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
)

// childRole is the variable that makes the test program play another: "app"
// runs Main, "host" starts an app as the Functions host does and waits.
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

// command is the test program in the given role, in a folder with the given
// host.json. Nothing of the settings that this process may have is handed down.
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

// program starts a command and returns it with what it prints.
func program(t *testing.T, role, hostJSON string, environ ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := command(t, role, hostJSON, environ...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// lineWith reads lines until one contains text.
func lineWith(t *testing.T, out *bufio.Reader, text string) string {
	t.Helper()
	var all bytes.Buffer
	for {
		line, err := out.ReadString('\n')
		all.WriteString(line)
		if strings.Contains(line, text) {
			return line
		}
		if err != nil {
			t.Fatalf("no line with %q in\n%s", text, all.String())
		}
	}
}

// addressIn returns the URL in the line that tells it.
func addressIn(t *testing.T, line string) string {
	t.Helper()
	_, rest, _ := strings.Cut(line, "address=")
	address, _, ok := strings.Cut(rest, " ")
	if !ok {
		t.Fatalf("no address in %q", line)
	}
	return address
}

// deadStorage is a connection to a port that nobody listens on.
func deadStorage(t *testing.T) string {
	t.Helper()
	at := "http://127.0.0.1:" + freePort(t) + "/a"
	return "AzureWebJobsStorage=AccountName=a;AccountKey=eA==;BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";TableEndpoint=" + at
}

func TestMain_StopsOnSIGTERMWithCode0(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd, out := program(t, "app", "{}", "PORT=0", deadStorage(t))
		base := addressIn(t, lineWith(t, out, "msg=listening"))
		if code, _ := get(t, base+"/"); code != http.StatusOK {
			t.Errorf("/ is answered with %d", code)
		}
		began := time.Now()
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		lineWith(t, out, "msg=stopping reason=\""+signal.String())
		lineWith(t, out, "msg=stopped")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0", signal, err)
		}
		if took := time.Since(began); took > DefaultShutdownTimeout {
			t.Errorf("%v: took %v", signal, took)
		}
	}
}

// The Functions host takes a line on standard error for an error, or for a warning
// if it has "warn" in it, and all of standard output for information
// (azure-functions-host: Workers/ProcessManagement/WorkerProcess.cs).
func TestMain_BehindTheHostWarningsAndErrorsGoToStandardError(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		cmd, out, errs := programWithErrors(t, "{", "FUNCTIONS_CUSTOMHANDLER_PORT="+freePort(t), "DURABLE_LOG_LEVEL=loud", "DURABLE_LOG_FORMAT="+format, deadStorage(t))
		lineWith(t, out, "listening")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		lineWith(t, out, "stopped")
		if err := cmd.Wait(); err != nil {
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

// On its own a program logs everything to standard output.
func TestMain_LogsNothingToStandardError(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		cmd, out, errs := programWithErrors(t, "{", "PORT=0", "DURABLE_LOG_LEVEL=debug", "DURABLE_LOG_FORMAT="+format, deadStorage(t))
		lineWith(t, out, "listening")
		lineWith(t, out, "ERROR") // host.json is wrong
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		lineWith(t, out, "stopped")
		if err := cmd.Wait(); err != nil || errs.Len() > 0 {
			t.Errorf("%s: %v, standard error has %q", format, err, errs)
		}
	}
}

// programWithErrors starts an app whose standard error is kept.
func programWithErrors(t *testing.T, hostJSON string, environ ...string) (*exec.Cmd, *bufio.Reader, *bytes.Buffer) {
	t.Helper()
	cmd := command(t, "app", hostJSON, environ...)
	errs := new(bytes.Buffer)
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended already if all is well
	return cmd, bufio.NewReader(out), errs
}

func TestMain_WrongConfigurationDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, hostJSON, setting, want string }{
		{
			"a bad value", `{"extensions": {"durableTask": {"storageProvider": {"partitionCount": 99}}}}`, "AzureWebJobsStorage=UseDevelopmentStorage=true",
			"extensions.durableTask.storageProvider.partitionCount is 99; want a whole number from 1 to 16 (host.json line 1)",
		},
		{"no JSON", "{", "AzureWebJobsStorage=UseDevelopmentStorage=true", "host.json line 1: the file ends before its object does"},
		{"no connection", durableTaskJSON(`"storageProvider": {"type": "AzureStorage"}`), "X=", "none of the settings AzureWebJobsStorage"},
	} {
		_, out := program(t, "app", tt.hostJSON, "PORT=0", tt.setting)
		base := addressIn(t, lineWith(t, out, "msg=listening"))
		if logged := lineWith(t, out, "level=ERROR"); !strings.Contains(logged, tt.want) {
			t.Errorf("%s: the log says %s, want %s", tt.name, logged, tt.want)
		}
		if code, body := get(t, base+"/api/durabletask/instances"); code != http.StatusServiceUnavailable || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want 503 with %s", tt.name, code, body, tt.want)
		}
	}
}

func TestMain_PortThatMakesNoSenseEndsTheProgram(t *testing.T) {
	t.Parallel()
	cmd, out := program(t, "app", "{}", "PORT=eighty")
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitNoConfig {
		t.Errorf("%v, want exit code %d", err, exitNoConfig)
	}
}

// What a variable says that is only read where a program begins.
func TestMain_BeginsAsEachVariableSays(t *testing.T) {
	t.Parallel()
	logged := func(environ ...string) string {
		cmd, out := program(t, "app", "{}", append([]string{"PORT=0", deadStorage(t)}, environ...)...)
		first := lineWith(t, out, "listening")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		return first + string(rest)
	}
	without := logged()
	for variable, e := range programEffects {
		value, expression := e.value, e.logged
		if variable == "PORT" { // another one may be taken
			value = freePort(t)
			expression = strings.ReplaceAll(expression, e.value, value)
		}
		says := regexp.MustCompile(expression)
		if with := logged(variable + "=" + value); !says.MatchString(with) || says.MatchString(without) {
			t.Errorf("%s=%s: want %s, but not without it:\n%s\nwithout:\n%s", variable, value, expression, with, without)
		}
	}
}

// local.settings.json is what `func start` reads; standalone it is read here.
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
		_, out := program(t, "app", "{}", append(environ, "FUNCTIONS_APP_ROOT_PATH="+root)...)
		return lineWith(t, out, "msg=listening")
	}
	if line := run(); !strings.Contains(line, "taskHub=LocalHub") || strings.Contains(line, ":8080") {
		t.Errorf("the log says %s", line)
	}
	if line := run("HUB=ExistingWins"); !strings.Contains(line, "taskHub=ExistingWins") {
		t.Errorf("the log says %s", line)
	}
}

// host: EmptyProcessRegistry.cs; on Linux a handler outlives a killed host.
func TestMain_EndsByItselfWhenTheHostIsKilled(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	host, out := program(t, "host", "{}", "FUNCTIONS_CUSTOMHANDLER_PORT="+port, deadStorage(t))
	var child int
	if _, err := fmt.Sscanf(lineWith(t, out, "child "), "child %d", &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	lineWith(t, out, `mode="Functions host"`)
	if code, _ := get(t, "http://127.0.0.1:"+port+"/"); code != http.StatusOK {
		t.Errorf("/ is answered with %d", code)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	lineWith(t, out, `msg=stopping reason="the parent process, the Functions host, has died"`)
	lineWith(t, out, "msg=stopped")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for syscall.Kill(child, 0) == nil && !isZombie(child) {
		if !taskhub.Pause(ctx, 20*time.Millisecond) {
			t.Fatal("the handler is still there after 5 seconds")
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v, want less than 5s", took)
	}
}

// isZombie reports whether a process has ended but nobody has taken notice: in
// a container without an init, an orphan stays like that.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

// When the host is killed nobody reads the handler's output any more; writing
// to it must not end the handler before it has given its leases back.
func TestMain_OutputThatNobodyReadsDoesNotKill(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "app", "{}", "PORT="+port, deadStorage(t))
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_ = write.Close()
	lineWith(t, bufio.NewReader(read), "msg=listening")
	_ = read.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // it logs that it stops
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
}

// freePort returns a port that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
