package handler

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
)

// A hanger has functions that wait until released is closed.
type hanger struct{ released chan struct{} }

type hangState struct{}

func (h *hanger) orchestrate(*durable.Context, string) (string, error) {
	<-h.released
	return "", nil
}

// app runs an app that reports stalled code after 100 ms.
func (h *hanger) app(t *testing.T, stallTimeout time.Duration) *Server {
	t.Helper()
	s := localApp(t, func(cfg *Config) {
		cfg.Worker.EpisodeWarnAfter, cfg.Worker.StallTimeout = 100*time.Millisecond, stallTimeout
	}, durable.Orchestrator("Hangs", h.orchestrate), durable.Entity("Hung", durable.Op("hang", func(*hangState, *durable.EntityContext, string) (string, error) {
		<-h.released
		return "", nil
	}), durable.Op("create", func(*hangState, *durable.EntityContext, string) (string, error) { return "", nil })))
	t.Cleanup(func() { close(h.released) })
	return s
}

// A stalled function has these texts in the log and in answers for operators.
type stalled struct{ waiting, function, kind, text, waitsFor string }

// sees waits until all answers about an instance name a function that does not yield.
func (want stalled) sees(t *testing.T, s *Server, id string) {
	t.Helper()
	// The worker reads the stack after it has reported the function.
	patience.Until(t, want.function+" is in the health with its stack", func() bool {
		health := got[management.HealthPayload](t, s, "GET", managed+"health/ready")
		isListed := slices.ContainsFunc(health.Waiting, func(w string) bool { return strings.Contains(w, want.waiting) })
		for _, one := range health.Stacks {
			if one.Function == want.function && strings.Contains(one.Stack, "handler/stall_test.go:") {
				return isListed && health.Status == "ready"
			}
		}
		return false
	})
	reasons := got[statusjson.Why](t, s, "GET", managed+"instances/"+id+"/why").Reasons
	if len(reasons) != 1 || reasons[0].Kind != want.kind || !strings.Contains(reasons[0].Text, want.text) || !strings.Contains(reasons[0].Stack, "handler/stall_test.go:") {
		t.Errorf("the reasons of %s are %+v, want kind %s with %s", id, reasons, want.kind, want.text)
	}
	if got := got[management.StatusPayload](t, s, "GET", managed+"instances/"+id); !strings.Contains(got.WaitsFor, want.waitsFor) {
		t.Errorf("%s waits for %q, want %q", id, got.WaitsFor, want.waitsFor)
	}
}

func TestStall_IsShownByVerifyWithOneStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, dir := &hanger{make(chan struct{})}, t.TempDir()
		defer close(h.released)
		for i := range 20 {
			text := fmt.Sprintf(`[{"EventType":"OrchestratorStarted","EventId":-1,"Timestamp":"2024-01-01T00:00:00Z"},
				{"EventType":"ExecutionStarted","EventId":-1,"Name":"Hangs","Input":"\"\"","OrchestrationInstance":{"InstanceId":"i%d","ExecutionId":"e"},"Timestamp":"2024-01-01T00:00:00Z"}]`, i)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".json")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tool := &hubTool{app: App{Registrations: []*durable.Registration{durable.Orchestrator("Hangs", h.orchestrate)}}}
		var out, errs strings.Builder
		code := hubcli.Program{Name: "app hub", Stdout: &out, Stderr: &errs, Verify: tool.verifier()}.Run(t.Context(), []string{"verify", dir})
		if code != hubcli.ExitFailed || !strings.Contains(errs.String(), "20 of 20 instances do not match") ||
			strings.Count(out.String(), `does not yield: it made no durable call for 10s`) != 20 ||
			strings.Count(out.String(), "\nstack of Hangs:\n") != 1 || strings.Count(out.String(), "handler/stall_test.go:") != 1 {
			t.Errorf("verify ended with %d and printed:\n%s%s", code, errs.String(), out.String())
		}
	})
}

func TestStall_OfRunningCodeIsSeenInStatusHealthAndWhy(t *testing.T) {
	t.Parallel()
	s := (&hanger{make(chan struct{})}).app(t, time.Hour)
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Hangs/a")
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Hangs/b")
	if w := call(s, "POST", managed+"entities/Hung/k?op=create", `""`); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	patience.Until(t, "the entity exists", func() bool { return call(s, "GET", managed+"entities/Hung/k", "").Code == 200 })
	if w := call(s, "POST", managed+"entities/Hung/k?op=hang", `""`); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	patience.Until(t, "both instances do not yield", func() bool {
		waiting := got[management.HealthPayload](t, s, "GET", managed+"health/ready").Waiting
		return strings.Contains(strings.Join(waiting, "\n"), `orchestrator "Hangs" does not yield; 2 instances have run without a durable call since`)
	})
	stalled{
		`orchestrator "Hangs" does not yield; 2`, `orchestrator "Hangs"`, "stalled",
		`the orchestrator "Hangs" does not yield`, `Running: the orchestrator "Hangs" does not yield`,
	}.sees(t, s, "a")
	stalled{
		`operation "hang" of entity "hung" does not return; 1`, `operation "hang" of entity "hung"`, "stalled",
		`the operation "hang" of entity "hung" does not return`, `Running: the operation "hang" of entity "hung" does not return`,
	}.sees(t, s, "@hung@k")
	if n := len(got[management.HealthPayload](t, s, "GET", managed+"health/ready").Stacks); n != 2 {
		t.Errorf("there are %d stacks, want one of each function", n)
	}
}

func TestStall_OfAbandonedCodeIsSeenInStatusHealthAndWhy(t *testing.T) {
	t.Parallel()
	s := (&hanger{make(chan struct{})}).app(t, 300*time.Millisecond)
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Hangs/a")
	stalled{
		`orchestrator "Hangs" does not yield; 1 instances have been held back since`, `orchestrator "Hangs"`, "heldBack",
		`held back: The orchestrator "Hangs" does not yield`, `The orchestrator "Hangs" does not yield`,
	}.sees(t, s, "a")
}
