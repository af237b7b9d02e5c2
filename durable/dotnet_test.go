package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/google/go-cmp/cmp"
)

// recordedFunctions are orchestrators with the logic of those whose histories
// DurableTask.AzureStorage 2.9.1 recorded.
func recordedFunctions() *durable.Registry {
	hello := func(_ context.Context, name string) (string, error) { return "Hello " + name + "!", nil }
	boom := func(_ context.Context, in string) (string, error) { return "", errors.New("kaboom " + in) }
	one := func(ctx *durable.Context, in string) (string, error) {
		return durable.CallActivity(ctx, hello, in).Await()
	}
	fails := func(ctx *durable.Context, in string) (string, error) {
		return durable.CallActivity(ctx, boom, in).Await()
	}
	child := func(_ *durable.Context, in string) (string, error) { return "child:" + in, nil }
	var loop func(*durable.Context, int) (string, error)
	loop = func(ctx *durable.Context, n int) (string, error) {
		if _, err := durable.CallActivity(ctx, hello, fmt.Sprint("n", n)).Await(); err != nil || n == 2 {
			return "looped", err
		}
		return durable.ContinueAsNew(ctx, loop, n+1)
	}
	return durable.NewRegistry(
		durable.Activity("Hello", hello),
		durable.Activity("Boom", boom),
		durable.Orchestrator("One", one),
		durable.Orchestrator("Fails", fails),
		durable.Orchestrator("Child", child),
		durable.Orchestrator("Loop", loop),
		durable.Orchestrator("HelloSeq", func(ctx *durable.Context, _ durable.Void) ([]string, error) {
			return durable.Map(ctx, hello, []string{"Tokyo", "Seattle", "London"}, 1)
		}),
		durable.Orchestrator("FailRetry", func(ctx *durable.Context, in string) (string, error) {
			return durable.CallActivity(ctx, boom, in, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}).Await()
		}),
		durable.Orchestrator("Parent", func(ctx *durable.Context, in string) (string, error) {
			out, err := durable.CallSubOrchestrator(ctx, child, in).Await()
			return "parent:" + out, err
		}),
		durable.Orchestrator("ParentOfFail", func(ctx *durable.Context, in string) (string, error) {
			return durable.CallSubOrchestrator(ctx, fails, in, ctx.InstanceID()+"-child").Await()
		}),
		durable.Orchestrator("Timer1", func(ctx *durable.Context, _ durable.Void) (string, error) {
			ctx.Sleep(2 * time.Second)
			return "timer done", nil
		}),
		durable.Orchestrator("LoopFast", func(*durable.Context, int) (string, error) { return "fast", nil }),
		durable.Orchestrator("WaitEv", func(ctx *durable.Context, _ string) (string, error) {
			out, err := durable.Event[string]("greet").Wait(ctx).Await()
			return "ev:greet=" + out, err
		}),
		durable.Orchestrator("Sender", func(ctx *durable.Context, to durable.InstanceID) (string, error) {
			return "sent", durable.Event[string]("greet").RaiseFrom(ctx, to, "yo")
		}),
		durable.Orchestrator("BigOut", func(_ *durable.Context, n int) (string, error) { return strings.Repeat("z", n), nil }),
	)
}

// For each episode of each recorded instance, an orchestrator replays the previous
// episodes and receives the recorded events. It must make the recorded decisions.
func TestOrchestrators_MakeTheDecisionsOfDotNet(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("internal/dispatch/testdata/dotnet/*.json")
	if err != nil || len(files) < 13 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var instances map[string][]recordedRow
		if err := json.Unmarshal([]byte(replaytest.ExpandPayloads(string(text))), &instances); err != nil {
			t.Fatal(err)
		}
		for id, rows := range instances {
			t.Run(filepath.Base(file)+"/"+id, func(t *testing.T) {
				t.Parallel()
				replayRecorded(t, id, rows)
			})
		}
	}
}

func replayRecorded(t *testing.T, id string, rows []recordedRow) {
	events := make([]history.Event, len(rows))
	var name string
	for i, r := range rows {
		events[i] = r.event(t)
		if e, ok := events[i].(*history.ExecutionStarted); ok {
			name = e.Name
			e.Instance = history.OrchestrationInstance{InstanceID: id, ExecutionID: "<execution of " + id + ">"}
		}
	}
	isTerminated := slices.ContainsFunc(events, func(e history.Event) bool { return e.Type() == history.TypeExecutionTerminated })
	for _, fault := range sim.CheckHistory(events, isTerminated) {
		t.Error("the rules of the simulator say:", fault)
	}
	code, ok := durable.EngineOf(recordedFunctions()).Orchestrator(name, "")
	if !ok {
		t.Fatalf("no orchestrator %s", name)
	}
	episodes := 0
	for begin := 0; begin < len(rows); episodes++ {
		end := begin + 1
		for end < len(rows) && rows[end].EventType != "OrchestratorStarted" {
			end++
		}
		arrived := slices.DeleteFunc(slices.Clone(events[begin:end]), func(e history.Event) bool { return e.Head().EventID != history.NoEventID || isEnd(e) })
		var want []string
		for _, r := range rows[begin:end] {
			if r.EventID >= 0 {
				want = append(want, r.summary())
			}
		}
		x := replay.New(history.OrchestrationInstance{InstanceID: id, ExecutionID: "<execution of " + id + ">"}, code)
		var got []string
		for _, e := range replaytest.Record(x.Episode(events[:begin], arrived).Actions, replaytest.Epoch) {
			got = append(got, summaryOf(e))
		}
		x.Close()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("episode %d (-recorded +ours):\n%s", episodes, diff)
		}
		begin = end
	}
}

// isEnd reports whether e ends an episode. The event of a continue-as-new does not.
func isEnd(e history.Event) bool {
	return e.Type() == history.TypeOrchestratorCompleted && !e.Head().IsPlayed
}

// recordedRow is a row of a recorded history table in testdata.
type recordedRow struct {
	EventType           string
	EventID             int `json:"EventId"`
	IsPlayed            bool
	Name                string
	InstanceID          string `json:"InstanceId"`
	Input, Result       *string
	Reason              *string
	TaskScheduledID     int `json:"TaskScheduledId"`
	TimerID             int `json:"TimerId"`
	OrchestrationStatus string
}

func (r recordedRow) event(t *testing.T) history.Event {
	t.Helper()
	head := history.Header{EventID: r.EventID, IsPlayed: r.IsPlayed, Timestamp: replaytest.Epoch}
	switch r.EventType {
	case "OrchestratorStarted":
		return &history.OrchestratorStarted{Header: head}
	case "OrchestratorCompleted":
		return &history.OrchestratorCompleted{Header: head}
	case "ExecutionStarted":
		return &history.ExecutionStarted{Header: head, Name: r.Name, Input: r.Input}
	case "ExecutionCompleted":
		return &history.ExecutionCompleted{Header: head, Result: r.Result}
	case "ExecutionTerminated":
		return &history.ExecutionTerminated{Header: head, Reason: r.Input}
	case "ExecutionSuspended":
		return &history.ExecutionSuspended{Header: head, Reason: r.Reason}
	case "ExecutionResumed":
		return &history.ExecutionResumed{Header: head, Reason: r.Reason}
	case "TaskScheduled":
		return &history.TaskScheduled{Header: head, Name: r.Name}
	case "TaskCompleted":
		return &history.TaskCompleted{Header: head, TaskScheduledID: r.TaskScheduledID, Result: r.Result}
	case "TaskFailed":
		return &history.TaskFailed{Header: head, TaskScheduledID: r.TaskScheduledID, Reason: r.Reason}
	case "TimerCreated":
		return &history.TimerCreated{Header: head}
	case "TimerFired":
		return &history.TimerFired{Header: head, TimerID: r.TimerID}
	case "SubOrchestrationInstanceCreated":
		return &history.SubOrchestrationInstanceCreated{Header: head, Name: r.Name, InstanceID: r.InstanceID}
	case "SubOrchestrationInstanceCompleted":
		return &history.SubOrchestrationInstanceCompleted{Header: head, TaskScheduledID: r.TaskScheduledID, Result: r.Result}
	case "SubOrchestrationInstanceFailed":
		return &history.SubOrchestrationInstanceFailed{Header: head, TaskScheduledID: r.TaskScheduledID, Reason: r.Reason}
	case "EventSent":
		return &history.EventSent{Header: head, Name: r.Name, InstanceID: r.InstanceID, Input: r.Input}
	case "EventRaised":
		return &history.EventRaised{Header: head, Name: r.Name, Input: r.Input}
	}
	t.Fatalf("recorded event has unknown type %s", r.EventType)
	return nil
}

// summary returns the fields of a decision that both programs must agree on. It omits
// the ID of a child if that is derived from the parent, because it is assigned later.
func (r recordedRow) summary() string {
	s := fmt.Sprint(r.EventType, " ", r.EventID, " ", r.Name)
	if !strings.HasPrefix(r.InstanceID, "<execution of") {
		s += " " + r.InstanceID
	}
	if s += " " + r.OrchestrationStatus; r.OrchestrationStatus != "" {
		s += " " + show(r.Result)
	}
	return strings.TrimSpace(s)
}

func summaryOf(e history.Event) string {
	r := recordedRow{EventType: e.Type().String(), EventID: e.Head().EventID}
	switch e := e.(type) {
	case *history.TaskScheduled:
		r.Name = e.Name
	case *history.SubOrchestrationInstanceCreated:
		r.Name, r.InstanceID = e.Name, e.InstanceID
	case *history.EventSent:
		r.Name, r.InstanceID = e.Name, e.InstanceID
	case *history.ExecutionCompleted:
		r.OrchestrationStatus, r.Result = e.Status.String(), e.Result
	}
	return r.summary()
}
