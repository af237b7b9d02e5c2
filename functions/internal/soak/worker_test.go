//go:build unix

package soak_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

// worker is a place for one process of the app at a time.
type worker struct {
	number int
	dir    string   // folder of the app's settings and logs
	env    []string // additional environment variables

	mu         sync.Mutex // guards the fields below
	generation int
	process    *process
}

// process is one run of the app.
type process struct {
	cmd    *exec.Cmd
	alive  *os.File // closing it kills the process
	log    string   // path of the log file
	done   chan struct{}
	listen string // the URL, empty until known
}

// guarded is a shell script that replaces itself by a command. A background process kills the process group
// when descriptor 3 is closed, at the latest when the test process has ended.
const guarded = `({ cat <&3; kill -9 -$$; } >/dev/null 2>&1 &); exec 3<&-; exec "$@"`

// start starts the next process. The previous one must have ended.
func (w *worker) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w.generation++
	p := &process{
		cmd:  exec.Command("sh", "-c", guarded, "sh", self),
		log:  filepath.Join(w.dir, fmt.Sprintf("worker-%d-%d.log", w.number, w.generation)),
		done: make(chan struct{}),
	}
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = w.dir, log, log
	p.cmd.Env = append(os.Environ(), append(w.env, traceVariable+"="+w.dir, "PORT=0")...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	guard, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	p.cmd.ExtraFiles, p.alive = []*os.File{guard}, alive
	if err := p.cmd.Start(); err != nil {
		return err
	}
	guard.Close()
	go func() { // ends with the process
		_ = p.cmd.Wait() // its log has the reason
		close(p.done)
	}()
	w.process = p
	return nil
}

// kill ends the process like kill -9.
func (w *worker) kill() {
	w.mu.Lock()
	p := w.process
	w.mu.Unlock()
	p.alive.Close()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}

// stop asks the process to end and waits until it has ended.
func (w *worker) stop(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	p := w.process
	w.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	patience.Until(t, fmt.Sprintf("the end of %s", p.log), func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	p.alive.Close()
}

// freeze suspends the process for a while.
func (w *worker) freeze(d time.Duration) {
	w.mu.Lock()
	p := w.process
	w.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
	select {
	case <-time.After(d):
	case <-p.done:
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
}

// name returns the name of the current process.
func (w *worker) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("worker-%d-%d", w.number, w.generation)
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// url returns the URL of the current process, "" if it does not listen yet.
func (w *worker) url() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.process; p.listen == "" {
		text, err := os.ReadFile(p.log)
		if found := listening.FindSubmatch(text); err == nil && found != nil {
			p.listen = string(found[1])
		}
	}
	return w.process.listen
}

// logs returns the logs of all processes.
func (w *worker) logs() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	logs := map[string]string{}
	for n := 1; n <= w.generation; n++ {
		path := filepath.Join(w.dir, fmt.Sprintf("worker-%d-%d.log", w.number, n))
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte(err.Error())
		}
		logs[path] = string(text)
	}
	return logs
}

// crashes returns the logs that report a data race or the end of a process by a panic.
func (w *worker) crashes() (found []string) {
	for path, text := range w.logs() {
		for _, mark := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
			if strings.Contains(text, mark) {
				found = append(found, fmt.Sprintf("%s has %q", path, strings.TrimSpace(mark)))
			}
		}
	}
	return found
}
