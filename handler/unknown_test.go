package handler

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
)

func idle(*durable.Context, string) (string, error) { return "", nil }

// unknownApp runs an app with two orchestrators on a hub in a local file.
func unknownApp(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	return localApp(t, change,
		durable.Orchestrator("Unsteady", func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
			if ctx.Sleep(1); !ctx.IsReplaying() {
				ctx.Sleep(1)
			}
			return durable.Event[durable.Void]("E").Wait(ctx).Await()
		}),
		durable.Orchestrator("Second", idle), durable.Orchestrator("First", func(*durable.Context, int) (int, error) { return 0, nil }),
	)
}

// localApp runs an app with functions on a hub in a local file.
func localApp(t *testing.T, change func(*Config), functions ...*durable.Registration) *Server {
	t.Helper()
	cfg := fakeConfig(t, nil)
	cfg.Provider, cfg.StorageType, cfg.Embedded.Path = nil, Embedded, t.TempDir()+"/hub.db"
	change(&cfg)
	s := readyServer(t, App{Registrations: functions}, cfg)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.work(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	patience.Until(t, "the hub is open", func() bool { return call(s, "GET", managed+"instances", "").Code == 200 })
	return s
}

// got decodes the answer to a request.
func got[T any](t *testing.T, s *Server, method, target string) T {
	t.Helper()
	w := call(s, method, target, "")
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code >= 400 {
		t.Fatalf("%s %s: %d %s: %v", method, target, w.Code, w.Body, err)
	}
	return v
}

func TestUnknownFunction_AStartGetsAWarningWithTheKnownFunctions(t *testing.T) {
	t.Parallel()
	s := unknownApp(t, func(*Config) {})
	known := got[ManagementPayload](t, s, "POST", managed+"orchestrators/first")
	if known.Warning != "" {
		t.Errorf("the start of a known function returned the warning %q", known.Warning)
	}
	started := got[ManagementPayload](t, s, "POST", managed+"orchestrators/Third/a")
	for _, part := range []string{`no orchestrator named "Third"`, "it has First, Second"} {
		if !strings.Contains(started.Warning, part) {
			t.Errorf("the warning is %q, want %q in it", started.Warning, part)
		}
	}
	patience.Until(t, "it fails at once", func() bool {
		return got[management.StatusPayload](t, s, "GET", managed+"instances/a").RuntimeStatus == history.Failed.String()
	})
	if i := got[management.StatusPayload](t, s, "GET", managed+"instances/a"); i.WaitsFor != "" || !strings.Contains(string(i.Output), "Third") {
		t.Errorf("it waits for %q and has output %s", i.WaitsFor, i.Output)
	}
}

func TestUnknownFunction_WaitingAndRestartingCallersGetTheWarning(t *testing.T) {
	t.Parallel()
	const want = `no orchestrator named "Third"; it has First, Second`
	s := unknownApp(t, func(*Config) {})
	if i := got[management.StatusPayload](t, s, "POST", managed+"orchestrators/Third/a?timeout=30&pollingInterval=1"); i.RuntimeStatus != history.Failed.String() || !strings.Contains(i.Warning, want) {
		t.Errorf("the waiting caller got %+v", i)
	}
	for _, query := range []string{"", "?restartWithNewInstanceId=false"} {
		if p := got[ManagementPayload](t, s, "POST", managed+"instances/a/restart"+query); !strings.Contains(p.Warning, want) {
			t.Errorf("restart%s warns %q", query, p.Warning)
		}
		patience.Until(t, "it fails again", func() bool {
			return got[management.StatusPayload](t, s, "GET", managed+"instances/a").RuntimeStatus == history.Failed.String()
		})
	}
	if i := got[management.StatusPayload](t, s, "GET", managed+"instances/a"); i.Warning != "" {
		t.Errorf("the status has the warning %q, want none", i.Warning)
	}
	waiting := unknownApp(t, func(cfg *Config) { cfg.Worker.UnknownFunctionTimeout = time.Hour })
	if p := got[ManagementPayload](t, waiting, "POST", managed+"orchestrators/Third/a?timeout=0.1&pollingInterval=0.1"); !strings.Contains(p.Warning, want) {
		t.Errorf("after the timeout the warning is %q, want %q", p.Warning, want)
	}
	known := got[ManagementPayload](t, waiting, "POST", managed+"orchestrators/First/b")
	patience.Until(t, "it ends", func() bool {
		return got[management.StatusPayload](t, waiting, "GET", managed+"instances/b").RuntimeStatus == history.Completed.String()
	})
	if p := got[ManagementPayload](t, waiting, "POST", managed+"instances/b/restart"); p.Warning+known.Warning != "" {
		t.Errorf("the restart of a known function returned the warning %q", p.Warning)
	}
}

func TestUnknownFunction_IsSeenInStatusAndHealthAndEndsWhenTerminated(t *testing.T) {
	t.Parallel()
	s := unknownApp(t, func(cfg *Config) { cfg.Worker.UnknownFunctionTimeout = time.Hour })
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Third/a")
	patience.Until(t, "health tells of it", func() bool {
		health := got[management.HealthPayload](t, s, "GET", managed+"health/ready")
		return health.Status == "ready" && len(health.Waiting) == 1 && strings.Contains(health.Waiting[0], `"Third"`)
	})
	if i := got[management.StatusPayload](t, s, "GET", managed+"instances/a"); !strings.Contains(i.WaitsFor, `an orchestrator named "Third"`) {
		t.Errorf("it waits for %q", i.WaitsFor)
	}
	if list := got[[]management.StatusPayload](t, s, "GET", managed+"instances"); len(list) != 1 || list[0].WaitsFor == "" {
		t.Errorf("the list is %+v", list)
	}
	if w := call(s, "POST", managed+"instances/a/terminate", ""); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	patience.Until(t, "it ends", func() bool {
		i := got[management.StatusPayload](t, s, "GET", managed+"instances/a")
		return i.RuntimeStatus == history.Terminated.String() && i.WaitsFor == ""
	})
	patience.Until(t, "it can be purged", func() bool { return call(s, "DELETE", managed+"instances/a", "").Code == 200 })
	patience.Until(t, "health no longer names it", func() bool {
		return len(got[management.HealthPayload](t, s, "GET", managed+"health/ready").Waiting) == 0
	})
}

// An instance that is held back because its code has changed appears in its status and in the health
// check. hub why shows the difference.
func TestHeldBack_IsSeenInStatusHealthAndWhy(t *testing.T) {
	t.Parallel()
	s := unknownApp(t, func(cfg *Config) { cfg.Worker.HoldNonDeterministic, cfg.Worker.ExtendedSessionIdle = true, -1 })
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Unsteady/a")
	patience.Until(t, "health tells of it", func() bool {
		health := got[management.HealthPayload](t, s, "GET", managed+"health/ready")
		return health.Status == "ready" && len(health.Waiting) == 1 && strings.Contains(health.Waiting[0], `"Unsteady" does not match the histories of 1 instances`)
	})
	if i := got[management.StatusPayload](t, s, "GET", managed+"instances/a"); i.RuntimeStatus != "Running" || !strings.Contains(i.WaitsFor, "Waits for matching code: the orchestrator") {
		t.Errorf("the status is %s with the note %q", i.RuntimeStatus, i.WaitsFor)
	}
	var kinds []string
	for _, r := range got[statusjson.Why](t, s, "GET", managed+"instances/a/why").Reasons {
		kinds = append(kinds, r.Kind)
	}
	if want := []string{"heldBack", "historyMismatch"}; !slices.Equal(kinds, want) {
		t.Errorf("it waits for %q, want %q", kinds, want)
	}
}

// An instance whose version the app does not take appears in its status, in the health check and in hub
// why. It can be terminated.
func TestVersionMismatch_IsSeenInStatusHealthAndWhy(t *testing.T) {
	t.Parallel()
	s := unknownApp(t, func(cfg *Config) { cfg.Worker.Version = "1.0" })
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Second/a?version=2.0")
	const cause = "the orchestration version '2.0' is greater than the worker version '1.0'"
	patience.Until(t, "health names it", func() bool {
		health := got[management.HealthPayload](t, s, "GET", managed+"health/ready")
		return health.Status == "ready" && len(health.Waiting) == 1 && strings.Contains(health.Waiting[0], `"Second" of version "2.0" is not accepted by this worker: `+cause)
	})
	if i := got[management.StatusPayload](t, s, "GET", managed+"instances/a"); i.RuntimeStatus != "Pending" || !strings.Contains(i.WaitsFor, cause) {
		t.Errorf("the status is %s with the note %q", i.RuntimeStatus, i.WaitsFor)
	}
	reasons := got[statusjson.Why](t, s, "GET", managed+"instances/a/why").Reasons
	if len(reasons) != 2 || reasons[0].Kind != "heldBack" || !strings.Contains(reasons[0].Text, cause) || reasons[0].Since == "" || reasons[1].Kind != "notStarted" {
		t.Errorf("it waits for %+v", reasons)
	}
	if w := call(s, "POST", managed+"instances/a/terminate", ""); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	patience.Until(t, "it ends", func() bool {
		return got[management.StatusPayload](t, s, "GET", managed+"instances/a").RuntimeStatus == history.Terminated.String()
	})
	patience.Until(t, "health no longer names it", func() bool {
		return len(got[management.HealthPayload](t, s, "GET", managed+"health/ready").Waiting) == 0
	})
}
