package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// logging makes a worker log to b's log as JSON.
func logging(b *bench, level slog.Level) func(*dispatch.Config) {
	return func(c *dispatch.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: level}))
	}
}

// logged returns the log entries about an instance that have one of the given .NET event names.
// Entries are in order and have the form "LEVEL event key=value …". Values that differ from run
// to run are omitted.
func (b *bench) logged(id string, events ...string) []string {
	b.Helper()
	var lines []string
	for text := range strings.Lines(b.log.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			b.Fatalf("%v: %s", err, text)
		}
		if record["instanceId"] != id || !slices.Contains(events, fmt.Sprint(record["event"])) {
			continue
		}
		if record["event"] == "FunctionCompleted" && record["taskEventId"] != nil {
			continue // of an activity, at the same time as the next entry of its orchestration
		}
		line := fmt.Sprint(record["level"], " ", record["event"])
		for _, key := range []string{"name", "functionType", "targetInstanceId", "operation", "eventName", "lockedBy", "reason", "taskEventId", "operations", "queueSize"} {
			if v, ok := record[key]; ok {
				line += fmt.Sprintf(" %s=%v", key, v)
			}
		}
		for _, key := range []string{"fireAt", "requestId"} {
			if v, ok := record[key]; ok && v == "" {
				b.Errorf("%s of %s is empty: %s", key, record["event"], text)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (b *bench) wantLogged(id string, events []string, want ...string) {
	b.Helper()
	got := b.logged(id, events...)
	if !slices.Equal(got, want) {
		b.Errorf("log of %s:\n%s\nwant\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var orchestrationEvents = []string{
	"FunctionScheduled", "FunctionListening", "TimerExpired", "ExternalEventRaised", "EntityResponseReceived",
	"SuspendingOrchestration", "ResumingOrchestration", "FunctionStarting", "FunctionCompleted",
}

// rounds does something of each kind in each of two generations.
func rounds(x *replay.Execution, input *string) (*string, error) {
	if _, err := callActivity(x, "Hello", "Oslo"); err != nil {
		return nil, err
	}
	sleepFor(x, time.Minute)
	waitEvent(x, "go")
	if decode[int](input) == 0 {
		return nil, nil
	}
	return nil, x.ContinueAsNew(encode(decode[int](input) - 1))
}

// The names and occasions come from WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs.
// Each event is logged once, including the events of a generation that continues as new. Replay
// makes no difference.
func TestEventLog_LogsEachReceivedAndScheduledEventOnce(t *testing.T) {
	for name, change := range map[string]func(*dispatch.Config){"replayed": func(*dispatch.Config) {}, "kept": extendedSessions} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				fns := one(rounds)
				b.work(fns, logging(b, slog.LevelDebug), change)
				b.start("i", "O", 1)
				for range 2 {
					time.Sleep(2 * time.Minute)
					b.send("i", &history.ExecutionSuspended{Reason: new("wait")})
					time.Sleep(time.Second)
					b.send("i", &history.ExecutionResumed{Reason: new("go on")})
					time.Sleep(time.Second)
					b.send("i", &history.EventRaised{Name: "go", Input: new(`"a secret"`)})
				}
				b.wantOutput("i", history.Completed, "<nil>")
				generation := []string{
					"DEBUG FunctionScheduled name=Hello functionType=Activity reason=O taskEventId=0",
					"DEBUG FunctionListening name=O taskEventId=1",
					"INFO TimerExpired name=O taskEventId=1",
					"INFO SuspendingOrchestration name=O reason=wait",
					"INFO ResumingOrchestration name=O reason=go on",
					"INFO ExternalEventRaised name=O eventName=go",
				}
				want := slices.Concat([]string{"DEBUG FunctionStarting name=O"}, generation, []string{"DEBUG FunctionCompleted name=O"}, generation,
					[]string{"INFO FunctionCompleted name=O"})
				b.wantLogged("i", orchestrationEvents, want...)
				if b.log.count("secret") > 0 || b.log.count("Oslo") > 0 {
					t.Errorf("the log has payloads:\n%s", b.log)
				}
			})
		})
	}
}

func TestEventLog_LogsFailedOrchestrationsAsErrors(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(one(func(*replay.Execution, *string) (*string, error) { return nil, errors.New("oh") }), logging(b, slog.LevelInfo))
		b.start("i", "O", 1)
		b.wantOutput("i", history.Failed, "error: oh")
		b.wantLogged("i", []string{"FunctionFailed"}, "ERROR FunctionFailed name=O")
	})
}

func TestEventLog_LogsRequestsToChildrenAndEntities(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := functions{
			entities: entityFunctions.entities,
			orchestrators: map[string]replay.Code{"Echo": entityFunctions.orchestrators["Echo"], "O": func(x *replay.Execution, _ *string) (*string, error) {
				f := new(replay.Future)
				x.CreateSubOrchestration(f, "Echo", "child", nil)
				if _, err := result(f); err != nil {
					return nil, err
				}
				lockEntities(x, counterID("a"))
				defer x.Unlock()
				return callEntity(x, counterID("a"), "add", 1)
			}},
		}
		b.work(fns, logging(b, slog.LevelDebug))
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "1")
		b.wantLogged("i", orchestrationEvents,
			"DEBUG FunctionStarting name=O",
			"DEBUG FunctionScheduled name=Echo functionType=Orchestrator targetInstanceId=child reason=O",
			"DEBUG EntityResponseReceived name=O", // the lock is granted
			"DEBUG FunctionScheduled name=counter functionType=Entity targetInstanceId=@counter@a operation=add reason=O",
			"DEBUG EntityResponseReceived name=O",
			"INFO FunctionCompleted name=O",
		)
	})
}

var entityEvents = []string{
	"FunctionScheduled", "OperationCompleted", "OperationFailed", "EntityStateCreated", "EntityStateDeleted",
	"EntityLockAcquired", "EntityLockReleased", "EntityBatchCompleted",
}

func TestEventLog_LogsOperationsAndLocksOfEntities(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := functions{
			entities: entityFunctions.entities,
			orchestrators: map[string]replay.Code{"Echo": entityFunctions.orchestrators["Echo"], "O": func(x *replay.Execution, _ *string) (*string, error) {
				lockEntities(x, counterID("a"))
				defer x.Unlock()
				sleepFor(x, time.Minute)
				return callEntity(x, counterID("a"), "get", nil)
			}},
		}
		b.work(fns, logging(b, slog.LevelDebug))
		for _, op := range []string{"add", "fail", "delete", "tell"} {
			b.signal(counterID("a"), op, 1, time.Time{})
			time.Sleep(time.Second)
		}
		b.start("i", "O", nil)
		b.wantOutput("i", history.Completed, "0")
		time.Sleep(time.Hour)
		done := "DEBUG EntityBatchCompleted name=counter operations=%d queueSize=0"
		one, none := fmt.Sprintf(done, 1), fmt.Sprintf(done, 0)
		got := b.logged("@counter@a", entityEvents...)
		for i, line := range got { // the ID of the child contains the ID of the request
			if before, id, ok := strings.Cut(line, "echo "); ok {
				_, after, _ := strings.Cut(id, " ")
				got[i] = before + "echo " + after
			}
		}
		want := []string{
			"DEBUG OperationCompleted name=counter operation=add", "DEBUG EntityStateCreated name=counter operation=add", one,
			"WARN OperationFailed name=counter operation=fail", one,
			"DEBUG OperationCompleted name=counter operation=delete", "DEBUG EntityStateDeleted name=counter operation=delete", one,
			"DEBUG OperationCompleted name=counter operation=tell",
			"DEBUG FunctionScheduled name=counter functionType=Entity targetInstanceId=@counter@other operation=add reason=counter",
			"DEBUG FunctionScheduled name=Echo functionType=Orchestrator targetInstanceId=echo reason=counter",
			"DEBUG FunctionScheduled name=counter functionType=Entity targetInstanceId=@counter@later operation=add reason=counter",
			one,
			"DEBUG EntityLockAcquired name=counter lockedBy=i", none,
			"DEBUG OperationCompleted name=counter operation=get", one,
			"DEBUG EntityLockReleased name=counter lockedBy=i", none,
		}
		if !slices.Equal(got, want) {
			t.Errorf("log of the entity:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Entries below the log level are not formatted, and entity requests are not even decoded.
func TestEventLog_AllocatesNothingBelowItsLevel(t *testing.T) {
	for _, tt := range []struct {
		level slog.Level
		want  []string
	}{
		{slog.LevelInfo, []string{"INFO TimerExpired", "INFO ExternalEventRaised", "INFO FunctionCompleted"}},
		{slog.LevelWarn, nil},
	} {
		bubble(t, func(b *bench) {
			b.work(one(rounds), logging(b, tt.level))
			b.start("i", "O", 0)
			time.Sleep(2 * time.Minute)
			b.send("i", &history.EventRaised{Name: "go"})
			b.wantOutput("i", history.Completed, "<nil>")
			var got []string
			for _, line := range b.logged("i", slices.Concat(orchestrationEvents, entityEvents)...) {
				got = append(got, strings.Join(strings.Fields(line)[:2], " "))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("log at level %v is %q, want %q", tt.level, got, tt.want)
			}
		})
	}
	log := slog.New(slog.NewTextHandler(new(logBook), &slog.HandlerOptions{Level: slog.LevelInfo}))
	request := entity.Request{ID: "r", Operation: "add"}
	cp := &provider.Checkpoint{Messages: []provider.TaskMessage{{
		Event:  &history.EventRaised{Name: "op", Input: new(request.Encode())},
		Target: history.OrchestrationInstance{InstanceID: "@counter@a"},
	}}}
	if n := testing.AllocsPerRun(100, func() { dispatch.LogScheduled(log, "O", cp) }); n != 0 {
		t.Errorf("%v allocations for entries below the level, want 0", n)
	}
}
