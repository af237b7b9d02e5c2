//go:build unix

package handler

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"github.com/google/uuid"
)

// crasher is an app whose functions panic on their own goroutines.
var crasher = App{Registrations: []*durable.Registration{
	durable.Orchestrator("Good", idle),
	durable.Orchestrator("activity", func(ctx *durable.Context, _ string) (string, error) {
		return durable.CallActivity(ctx, crashingActivity, "").Await()
	}),
	durable.Activity("Crash", crashingActivity),
	durable.Orchestrator("orchestrator", func(*durable.Context, string) (string, error) {
		crash()
		select {}
	}),
	durable.Entity("crasher", durable.Op("crash", (*crashingEntity).Crash), durable.Op("set", (*crashingEntity).Set)),
	durable.Orchestrator("late", func(ctx *durable.Context, _ string) (string, error) {
		for {
			if _, err := durable.CallActivity(ctx, crashLater, "").Await(); err != nil {
				return "", err
			}
			if _, err := durable.CallActivity(ctx, crashNow, "").Await(); err != nil {
				return "", err
			}
		}
	}),
	durable.Activity("CrashLater", crashLater),
	durable.Activity("CrashNow", crashNow),
}}

func crashingActivity(ctx context.Context, _ string) (string, error) {
	crash()
	<-ctx.Done()
	return "", ctx.Err()
}

func crash() {
	go func() { panic("on a goroutine of the user") }()
}

type crashingEntity struct{ N int }

func (e *crashingEntity) Set(_ *durable.EntityContext, n int) (int, error) {
	e.N = n
	return n, nil
}

func (*crashingEntity) Crash(*durable.EntityContext, durable.Void) (durable.Void, error) {
	crash()
	select {}
}

// now makes the goroutines of crashLater panic, long after their activity has completed.
var now = make(chan struct{})

func crashLater(context.Context, string) (string, error) {
	go func() {
		<-now
		panic("after the activity's end")
	}()
	return "", nil
}

func crashNow(context.Context, string) (string, error) {
	select {
	case <-now:
	default:
		close(now)
	}
	return "", nil
}

// crasherLease is the variable that sets a shorter lease of partitions than settings allow.
const crasherLease = "HANDLER_TEST_LEASE"

// runCrasher is Main for the crasher.
func runCrasher() {
	lease, err := time.ParseDuration(os.Getenv(crasherLease))
	if err != nil || len(os.Args) > 1 {
		Main(crasher)
	}
	cfg, err := Load()
	if err != nil {
		panic(err)
	}
	cfg.Storage.LeaseInterval, cfg.Storage.LeaseAcquireInterval = lease, lease/4
	cfg.Worker.CrashFile, cfg.Logger = cfg.crashFile(), NewLogger(os.Stdout, cfg.LogLevel)
	if err := New(crasher, cfg).Run(context.Background()); err != nil {
		panic(err)
	}
}

// A machine restarts a crasher repeatedly.
type machine struct {
	*testing.T
	name    string // suffix of the instance IDs
	role    string // role of the program
	root    string
	environ []string

	process *process
	base    string
}

// newMachine returns a machine whose app has the given members of extensions.durableTask.
func newMachine(t *testing.T, durableTask string, environ ...string) *machine {
	t.Helper()
	m := &machine{T: t, name: uuid.NewString()[:8], role: "crasher", root: t.TempDir(), environ: append(environ, "PORT=0", "GOTRACEBACK=single")}
	if err := os.WriteFile(filepath.Join(m.root, settings.HostJSONFile), []byte(durableTaskJSON(durableTask)), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// start starts the process. It ends with the test.
func (m *machine) start() {
	m.Helper()
	cmd := command(m.T, m.role, "{}", append(m.environ, "XDG_CACHE_HOME="+m.root)...)
	cmd.Dir = m.root
	m.process = launch(m.T, cmd)
	m.base = addressIn(m.T, m.process.lineWith("msg=listening"))
}

// crashed waits until the process ends with a panic.
func (m *machine) crashed() {
	m.Helper()
	m.process.rest()
	_ = m.process.wait()
	if code := m.process.cmd.ProcessState.ExitCode(); code != 2 {
		m.Fatalf("the process ends with code %d, want the 2 of a panic", code)
	}
}

func (m *machine) kill() {
	m.process.signal(syscall.SIGKILL)
	_ = m.process.wait()
}

// post sends a request, and repeats it while the app is not ready. If crashing is true, the process may end without
// an answer. A start that gets status 503 can succeed nevertheless; the repeated start then gets 409.
func (m *machine) post(path string, crashing bool) {
	m.Helper()
	uncertain := false
	patience.Until(m.T, "POST "+path, func() bool {
		r, err := http.NewRequestWithContext(m.Context(), http.MethodPost, m.base+managed+path, nil)
		if err != nil {
			m.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil && crashing {
			return true
		}
		if err != nil {
			m.Fatal(err)
		}
		_ = answer.Body.Close()
		switch code := answer.StatusCode; {
		case code < 300, code == http.StatusConflict && uncertain:
			return true
		case code != http.StatusServiceUnavailable:
			m.Fatalf("POST %s: %d", path, code)
		}
		uncertain = true
		return false
	})
}

// becomes waits until an instance has a status.
func (m *machine) becomes(id, want string) {
	m.Helper()
	patience.Until(m.T, id+" is "+want, func() bool {
		_, body := get(m.T, m.base+managed+"instances/"+id)
		return strings.Contains(body, `"runtimeStatus":"`+want+`"`)
	})
}

// entityExists signals an entity and waits until it has a state.
func (m *machine) entityExists(key string) {
	m.Helper()
	m.post("entities/crasher/"+key+"?op=set", false)
	patience.Until(m.T, "entity "+key+" has a state", func() bool {
		code, _ := get(m.T, m.base+managed+"entities/crasher/"+key)
		return code == http.StatusOK
	})
}

// hub runs `app hub` and returns its output.
func (m *machine) hub(args ...string) string {
	m.Helper()
	cmd := command(m.T, "crasher", "{}", append(m.environ, "XDG_CACHE_HOME="+m.root)...)
	cmd.Dir = m.root
	cmd.Args = append(cmd.Args, append([]string{"hub"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		m.Fatal(err)
	}
	return string(out)
}

const inAFile = `"storageProvider": {"type": "embedded"}`

// One instance cannot keep an app in a crash loop. Work that was in flight at two crashes is set aside.
// A function that crashes the process after its work has ended is set aside after five crashes. Other
// work continues. An operator can release the work.
func TestCrash_WorkThatCrashesTheProcessIsSetAside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, start, id, what string
		crashes               int
	}{
		{"an activity", "orchestrators/activity/bad", "bad", `activity "Crash"`, 2},
		{"an orchestrator", "orchestrators/orchestrator/bad", "bad", `orchestrator "orchestrator"`, 2},
		{"an entity", "entities/crasher/bad?op=crash", "@crasher@bad", `entity "crasher"`, 2},
		{"a function", "orchestrators/late/bad", "bad", `activity "CrashLater"`, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, inAFile)
			m.start()
			m.process.lineWith("connected to storage")
			m.entityExists("bad")
			m.post(tt.start, true)
			m.crashed()
			for range tt.crashes - 1 {
				m.start()
				m.crashed()
			}

			m.start()
			if line := m.process.lineWith("held back"); !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "instanceId="+tt.id) {
				t.Errorf("the log says %s", line)
			}
			if _, body := get(t, m.base+managed+"instances/"+tt.id); !strings.Contains(body, "Set aside: the "+strings.ReplaceAll(tt.what, `"`, `\"`)) {
				t.Errorf("the status is %s", body)
			}
			if _, body := get(t, m.base+management.ReadyPath); !strings.Contains(body, "1 instances have been set aside") {
				t.Errorf("the health is %s", body)
			}
			if told := m.hub("crashes"); !strings.Contains(told, "yes\t"+tt.what) {
				t.Errorf("the command line says %s", told)
			}
			m.post("orchestrators/Good/good", false)
			m.becomes("good", "Completed")
			m.entityExists("good")

			// A kill does not count as a crash, and a start does not reset the counts.
			m.kill()
			m.start()
			m.process.lineWith("held back")
			if tt.id == "bad" {
				m.post("instances/bad/suspend?reason=x", false)
				m.becomes("bad", "Suspended")
				m.post("instances/bad/resume?reason=x", true)
			} else {
				m.hub("crashes", "--forget")
			}
			m.crashed() // it runs again
		})
	}
}

// Each machine counts crashes separately. Work that is set aside on one machine crashes each other
// machine at most twice. Then all machines run.
func TestCrash_EachMachineOfAHubInAzureStorageSetsItAside(t *testing.T) {
	t.Parallel()
	connection := "AzureWebJobsStorage=" + azuritetest.Start(t)
	for name, start := range map[string][]string{
		"an activity":     {"start", "activity", "--id", "bad"},
		"an orchestrator": {"start", "orchestrator", "--id", "bad"},
		"an entity":       {"entity", "signal", "crasher", "bad", "crash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "an activity" {
				processtest.SkipInShortRuns(t)
			}
			hub := `"hubName": "Crash` + uuid.NewString()[:8] + `", "storageProvider": {"type": "AzureStorage", "maxQueuePollingInterval": "00:00:01"}`
			a, b := newMachine(t, hub, connection, crasherLease+"=3s"), newMachine(t, hub, connection, crasherLease+"=3s")
			a.start()
			a.process.lineWith("connected to storage")
			a.hub(start...) // a request to the crashing process itself could be lost
			for _, m := range []*machine{a, b} {
				if m == b {
					a.kill()
					b.start()
				}
				m.crashed()
				m.start()
				m.crashed()
				m.start()
				m.process.lineWith("held back")
				if told := m.hub("crashes"); !strings.Contains(told, "yes\t") {
					t.Errorf("the command line says %s", told)
				}
			}
			a.start()
			for _, m := range []*machine{a, b} {
				for i := range 8 {
					m.post(fmt.Sprintf("orchestrators/Good/%s%d", m.name, i), false)
				}
			}
			for _, m := range []*machine{a, b} {
				for i := range 8 {
					m.becomes(fmt.Sprintf("%s%d", m.name, i), "Completed")
				}
			}
		})
	}
}
