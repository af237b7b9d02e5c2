package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"go.opentelemetry.io/otel/sdk/trace"
)

// A logApp is an app whose functions write to the log.
type logApp struct{ own *slog.Logger }

func (a logApp) registrations() []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("Main", a.main), durable.Orchestrator("Child", a.child), durable.Activity("Fail", a.fail),
		durable.Entity("counter", durable.Op("add", (*logCounter).Add), durable.Op("fail", (*logCounter).Fail)),
	}
}

// main uses each kind of task, and then fails.
func (a logApp) main(ctx *durable.Context, _ durable.Void) (int, error) {
	ctx.Logger().Info("of the orchestrator")
	counter := durable.EntityKey[logCounter]("k")
	if _, err := durable.CallEntity(ctx, counter, (*logCounter).Add, 1).Await(); err != nil {
		return 0, err
	}
	if _, err := durable.CallEntity(ctx, counter, (*logCounter).Fail, 1).Await(); err == nil {
		return 0, errors.New("the operation has not failed")
	}
	ctx.Sleep(time.Millisecond)
	if _, err := durable.Event[int]("go").Wait(ctx).Await(); err != nil {
		return 0, err
	}
	return durable.CallSubOrchestrator(ctx, a.child, durable.Void{}).Await()
}

// child calls an activity that fails.
func (a logApp) child(ctx *durable.Context, _ durable.Void) (int, error) {
	return durable.CallActivity(ctx, a.fail, durable.Void{}).Await()
}

func (a logApp) fail(ctx context.Context, _ durable.Void) (int, error) {
	a.own.InfoContext(ctx, "of the activity")
	a.own.With("instanceId", "another").InfoContext(ctx, "about another instance", "taskHub", "-", "name", "-", "traceId", "-")
	a.own.With("taskHub", "Mine").InfoContext(ctx, "with keys of the app", "name", "Ann")
	return 0, errors.New("broken")
}

type logCounter struct{ Total int }

// Add adds n.
func (c *logCounter) Add(ctx *durable.EntityContext, n int) (int, error) {
	ctx.Logger().Info("of the entity")
	c.Total += n
	return c.Total, nil
}

// Fail fails.
func (*logCounter) Fail(*durable.EntityContext, int) (int, error) { return 0, errors.New("broken") }

// Each line of an instance has the hub, the instance, the function and the trace.
func TestLogging_EachLineOfAnInstanceHasItsFields(t *testing.T) {
	t.Parallel()
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	log := &logBuffer{}
	cfg := Config{
		Address: "127.0.0.1:0", StorageType: Embedded, Embedded: EmbeddedConfig{Path: filepath.Join(t.TempDir(), "hub.db")},
		Storage: azurestorage.Config{TaskHub: "MyHub"},
	}
	cfg.Worker.Tracing.Provider = trace.NewTracerProvider(trace.WithIDGenerator(durable.SpanIDs{}))
	cfg.Logger = slog.New(&activityHandler{Handler: NewJSONLogger(log, slog.LevelDebug).Handler(), taskHub: "MyHub"})
	a := runFileApp(t, New(App{Registrations: logApp{cfg.Logger}.registrations()}, cfg), log)
	a.await(t, http.MethodGet, "/durabletask/health/ready", http.StatusOK)
	post := func(target string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader("1"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, r); w.Code != http.StatusAccepted {
			t.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	post("/durabletask/orchestrators/Main/main")
	post("/durabletask/instances/main/raiseEvent/go")
	a.awaitAnswer(t, http.MethodGet, "/durabletask/instances/main", http.StatusOK, "Failed")
	patience.Until(t, "the last line of the instance", func() bool { return log.count(`"level":"ERROR","msg":"orchestration ended"`) == 2 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	seen := map[string]int{}
	for line := range strings.Lines(log.text.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if record["instanceId"] == nil {
			continue
		}
		if strings.Count(line, `"instanceId":`) > 1 || strings.Count(line, `"name":`) > 1 || strings.Count(line, `"taskHub":`) > 1 || strings.Count(line, `"traceId":`) > 1 {
			t.Errorf("a field is there twice: %s", line)
		}
		seen[record["msg"].(string)]++
		if record["instanceId"] == "another" {
			continue
		}
		if record["msg"] == "with keys of the app" {
			if record["taskHub"] != "Mine" || record["name"] != "Ann" || record["instanceId"] == nil || record["traceId"] != traceID {
				t.Errorf("fields are replaced or missing: %s", line)
			}
			continue
		}
		isBatch := record["event"] == "EntityBatchCompleted" || record["event"] == "FunctionScheduled" // may combine several traces
		if record["taskHub"] != "MyHub" || record["name"] == nil || record["traceId"] != traceID && !isBatch {
			t.Errorf("fields are missing: %s", line)
		}
	}
	for _, msg := range []string{
		"orchestration started", "orchestration ended", "activity failed", "entity operation completed", "entity operation failed",
		"timer fired", "event received", "function scheduled", "committed a checkpoint", "of the orchestrator", "of the activity", "of the entity", "about another instance", "with keys of the app",
	} {
		if seen[msg] == 0 {
			t.Errorf("the log has no line %q; its lines are %v", msg, seen)
		}
	}
}
