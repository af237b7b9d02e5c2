package durabletest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

// testdata/recorded has histories of journey, in each format.
func TestReplay_ReadsEveryFormat(t *testing.T) {
	t.Parallel()
	for _, file := range recorded(t, "recorded", "*.json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			durabletest.Replay(t, journeys(), file)
		})
	}
}

// recorded returns the files of a folder below testdata, which must have some.
func recorded(t *testing.T, folder, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s in testdata/%s: %v", pattern, folder, err)
	}
	return files
}

// changed returns the functions of journeys with another orchestrator in place of journey.
func changed(orchestrator *durable.Registration) []*durable.Registration {
	return append([]*durable.Registration{orchestrator}, journeys()[1:]...)
}

func TestReplay_FailsWhereTheCodeHasChanged(t *testing.T) {
	t.Parallel()
	quoted := func(ctx *durable.Context, t trip) { durable.CallActivity(ctx, quote, t.Cities[0]) }
	for _, c := range []struct {
		name     string
		function *durable.Registration
		file     string   // glob pattern
		want     []string // in all formats
	}{
		{
			"an additional call at the start",
			durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
				quoted(ctx, t)
				return journey(ctx, t)
			}),
			"*.json",
			[]string{"decision", "the code did:", "Non-Deterministic workflow detected"},
		},
		{
			"a missing call",
			durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
				t.Cities = t.Cities[:2]
				return journey(ctx, t)
			}),
			"*.json",
			[]string{"history has:  an activity task named 'Quote'", "the code did: an activity task named '"},
		},
		{
			"no calls at all",
			durable.Orchestrator("Journey", func(*durable.Context, trip) (string, error) { return "", nil }),
			"*.json",
			[]string{"decision 0", "the code did: the orchestration's completion"},
		},
		{
			"an additional call after the recorded end",
			durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
				s, err := journey(ctx, t)
				if err == nil {
					s, err = durable.CallActivity(ctx, quote, "home").Await()
				}
				return s, err
			}),
			"ended.*.json",
			[]string{"event ", " of ", ": ExecutionCompleted", "history has:  the end: Completed with", `the code did: activity Quote with input ["home"]`},
		},
		{
			"another end",
			durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
				_, err := journey(ctx, t)
				return "", errors.Join(err, errors.New("missed it"))
			}),
			"ended.*.json",
			[]string{"history has:  the end: Completed with", "the code did: the end: Failed with missed it"},
		},
		{
			"an additional wait after the recorded end",
			durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
				if _, err := journey(ctx, t); err != nil {
					return "", err
				}
				return durable.Event[string]("Home").Wait(ctx).Await()
			}),
			"ended.*.json",
			[]string{"the code did: nothing; it waits for event Home"},
		},
		{
			"an earlier end",
			durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
				return journeyWithoutLeave(ctx, t)
			}),
			"under-way.*.json",
			[]string{"after the ", "history has:  nothing", "the code did: the orchestration's completion"},
		},
		{
			"another name",
			durable.Orchestrator("Trip", journey),
			"*.json",
			[]string{`orchestrator "Journey"`, "not among the functions"},
		},
	} {
		for _, file := range recorded(t, "recorded", c.file) {
			t.Run(c.name+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				got := fails(t, func(t durabletest.TB) { durabletest.Replay(t, changed(c.function), file) })
				contains(t, got, file)
				contains(t, got, c.want...)
			})
		}
	}
}

// journeyWithoutLeave is journey without the wait for its event.
func journeyWithoutLeave(ctx *durable.Context, t trip) (string, error) {
	ctx.Timer(240 * time.Hour)
	tasks := make([]*durable.Task[string], 0, len(t.Cities)+1)
	for _, city := range t.Cities {
		tasks = append(tasks, durable.CallActivity(ctx, quote, city))
	}
	tasks = append(tasks, durable.CallActivity(ctx, forecast, t.Cities[0]))
	if _, err := durable.AwaitAll(ctx, tasks...); err != nil {
		return "", err
	}
	policy := durable.RetryPolicy{MaxAttempts: 3, FirstInterval: 100 * time.Millisecond}
	if _, err := durable.CallActivity(ctx, book, "", policy).Await(); err != nil {
		return "", err
	}
	return durable.CallSubOrchestrator(ctx, pack, "").Await()
}

func TestReplay_ReportsTheFirstDifference(t *testing.T) {
	t.Parallel()
	less := durable.Orchestrator("Journey", func(ctx *durable.Context, t trip) (string, error) {
		t.Cities = t.Cities[:2]
		return journey(ctx, t)
	})
	for form, c := range map[string]struct {
		event    string
		decision string
		did      string
	}{
		"rows": {"\tevent 5 of ", "3", "Forecast"},
		"func": {"\tevent 5 of ", "3", "Forecast"},
		// The management API does not show the order of calls with the same time. The
		// additional call is detected at the next call.
		"api": {"\tevent 1", "4", "Book"},
	} {
		got := fails(t, func(t durabletest.TB) { durabletest.Replay(t, changed(less), "testdata/recorded/ended."+form+".json") })
		lines := strings.Split(got, "\n")
		for i, want := range []string{
			"durabletest: the code does not match the recorded history testdata/recorded/ended." + form + ".json.",
			c.event,
			"\tdecision " + c.decision,
			"\thistory has:  an activity task named 'Quote'",
			"\tthe code did: an activity task named '" + c.did + "'",
			"Non-Deterministic workflow detected: A previous execution of this orchestration scheduled an activity task with sequence ID " + c.decision + " and name 'Quote'",
		} {
			if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
				t.Errorf("%s: got:\n%s\nwant %q in line %d", form, got, want, i)
			}
		}
	}
}

// testdata/dotnet has history rows that DurableTask.AzureStorage 2.9.1 wrote for .NET
// orchestrators with the same logic.
func TestReplay_ReadsHistoriesOfDotNet(t *testing.T) {
	t.Parallel()
	const (
		hello = durable.ActivityName[string, string]("Hello")
		boom  = durable.ActivityName[string, string]("Boom")
		child = durable.OrchestratorName[string, string]("Child")
		fail  = durable.OrchestratorName[string, string]("Fails")
		greet = durable.Event[string]("greet")
	)
	var loop, loopFast func(*durable.Context, int) (string, error)
	loop = func(ctx *durable.Context, n int) (string, error) {
		if _, err := hello.Call(ctx, "n").Await(); err != nil || n == 2 {
			return "looped", err
		}
		return durable.ContinueAsNew(ctx, loop, n+1)
	}
	loopFast = func(ctx *durable.Context, n int) (string, error) {
		if n == 2 {
			return "looped", nil
		}
		return durable.ContinueAsNew(ctx, loopFast, n+1)
	}
	functions := []*durable.Registration{
		durable.Orchestrator("One", func(ctx *durable.Context, in string) (string, error) { return hello.Call(ctx, in).Await() }),
		durable.Orchestrator("Child", func(_ *durable.Context, in string) (string, error) { return "child " + in, nil }),
		durable.Orchestrator("Parent", func(ctx *durable.Context, in string) (string, error) { return child.Call(ctx, in).Await() }),
		durable.Orchestrator("Fails", func(ctx *durable.Context, in string) (string, error) { return boom.Call(ctx, in).Await() }),
		durable.Orchestrator("FailRetry", func(ctx *durable.Context, in string) (string, error) {
			return boom.Call(ctx, in, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}).Await()
		}),
		durable.Orchestrator("ParentOfFail", func(ctx *durable.Context, in string) (string, error) {
			return fail.Call(ctx, in, durable.InstanceID(string(ctx.InstanceID())+"-child")).Await()
		}),
		durable.Orchestrator("Timer1", func(ctx *durable.Context, _ string) (string, error) { ctx.Sleep(2 * time.Second); return "", nil }),
		durable.Orchestrator("WaitEv", func(ctx *durable.Context, _ string) (string, error) { return greet.Wait(ctx).Await() }),
		durable.Orchestrator("Sender", func(ctx *durable.Context, to string) (string, error) {
			return "sent", greet.RaiseFrom(ctx, durable.InstanceID(to), "yo")
		}),
		durable.Orchestrator("Loop", loop),
		durable.Orchestrator("LoopFast", loopFast),
	}
	for _, file := range recorded(t, "dotnet", "*.rows.json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(filepath.Base(file), "big") {
				contains(t, fails(t, func(t durabletest.TB) { durabletest.Replay(t, functions, file) }), "is in the blob", "which is not part of the file")
				return
			}
			durabletest.Replay(t, functions, file)
		})
	}
}

// Rows of an older and longer execution may follow the rows of the current one.
func TestReplay_ReadsOnlyTheCurrentExecution(t *testing.T) {
	t.Parallel()
	rows := `{"value": [
		{"PartitionKey":"i","RowKey":"0000000000000003","ExecutionId":"old","EventType":"TaskCompleted","EventId":-1,"TaskScheduledId":0},
		{"PartitionKey":"i","RowKey":"0000000000000002","ExecutionId":"new","EventType":"OrchestratorCompleted","EventId":-1,"_Timestamp":"2024-01-01T00:00:00Z"},
		{"PartitionKey":"i","RowKey":"0000000000000000","ExecutionId":"new","EventType":"OrchestratorStarted","EventId":-1,"_Timestamp":"2024-01-01T00:00:00Z"},
		{"PartitionKey":"i","RowKey":"0000000000000001","ExecutionId":"new","EventType":"ExecutionStarted","EventId":-1,"Name":"Decide","_Timestamp":"2024-01-01T00:00:00Z"},
		{"PartitionKey":"i","RowKey":"sentinel","ExecutionId":"new"}
	]}`
	durabletest.Replay(t, functions, file(t, "\ufeff"+rows))
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "history.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReplay_ReportsInvalidFiles(t *testing.T) {
	t.Parallel()
	const start = `{"EventType":"ExecutionStarted","Input":null,"Timestamp":"2024-01-01T00:00:00Z","FunctionName":"Backup"}`
	for text, want := range map[string]string{
		``:                                       "it has no events",
		`[]`:                                     "it has no events",
		`history`:                                "it is not valid JSON",
		`3`:                                      "no list of events",
		`[{"a":1}]`:                              "neither rows of a History table, nor",
		`{"runtimeStatus":"x"}`:                  "showHistory=true",
		`{"historyEvents": "x"}`:                 "no list of events",
		`[{"EventType":"Invented","EventId":0}]`: `event 0: unknown EventType "Invented"`,
		`[{"EventType":"OrchestratorStarted","EventId":0}]`:                                                  "the history has no ExecutionStarted",
		`[{"EventType":"ExecutionStarted","EventId":-1,"Name":"Unknown","Version":"7"}]`:                     `orchestrator "Unknown", version "7", which is not among the functions`,
		`[{"EventType":"ExecutionStarted","Timestamp":"2024-01-01T00:00:00Z"}]`:                              "showInput=true",
		`[` + start + `,{"EventType":"TaskCompleted","FunctionName":"ListFiles"}]`:                           "event 1: the results are missing; fetch the history with showHistoryOutput=true",
		`[` + start + `,{"EventType":"TaskCompleted","FunctionName":"X","Result":1,"ScheduledTime":"noon"}]`: "event 1: ScheduledTime",
		`[{"RowKey":"0","PartitionKey":"a"},{"RowKey":"0","PartitionKey":"b"}]`:                              "rows of two instances, a and b",
		`[{"RowKey":"0","PartitionKey":"a","EventType":"TaskCompleted","ResultBlobName":"r"}]`:               "row 0: the value of Result is in the blob r",
		`[{"RowKey":"0","PartitionKey":"a","EventType":"TaskFailed","FailureDetails":"{"}]`:                  "TaskFailed",
	} {
		contains(t, fails(t, func(tb durabletest.TB) { durabletest.Replay(tb, functions, file(t, text)) }), want)
	}
	contains(t, fails(t, func(t durabletest.TB) { durabletest.Replay(t, functions, "testdata/nothing.json") }), "no such file")
}

// A history with the marker of a code change is replayed with the change, in each format. .NET writes
// no marker; there the recorded decisions show whether the code had the change.
func TestReplay_FindsCodeChangesInAHistory(t *testing.T) {
	t.Parallel()
	changing := durable.Orchestrator("Changing", func(ctx *durable.Context, o Order) (string, error) {
		first := durable.ActivityName[Order, string]("Reserve")
		if ctx.Patched("escalate") {
			first = "Escalate"
		}
		one, two := first.Call(ctx, o), durable.CallActivity(ctx, Charge, o)
		if _, err := durable.AwaitAll(ctx, two, one); err != nil {
			return "", err
		}
		by, err := Approval.Wait(ctx).Await()
		return by.By, err
	})
	all := append([]*durable.Registration{changing}, functions...)
	const (
		marker = `{"EventType":"GenericEvent","Data":"durable.Context.Patched: escalate","EventId":-1,"Timestamp":"2024-01-01T00:00:00Z"},`
		begun  = `{"EventType":"OrchestratorStarted","EventId":-1,"Timestamp":"2024-01-01T00:00:00Z"},`
		start  = `{"EventType":"ExecutionStarted","EventId":-1,"Name":"Changing","Input":"{}","Timestamp":"2024-01-01T00:00:00Z"},`
		shown  = `{"EventType":"ExecutionStarted","Input":"{}","Timestamp":"2024-01-01T00:00:00Z","FunctionName":"Changing"},`
	)
	scheduled := func(name string) string {
		return `{"EventType":"TaskScheduled","EventId":0,"Name":"` + name + `","Timestamp":"2024-01-01T00:00:00Z"},` +
			`{"EventType":"TaskScheduled","EventId":1,"Name":"Charge","Timestamp":"2024-01-01T00:00:00Z"},` +
			`{"EventType":"OrchestratorCompleted","EventId":-1,"Timestamp":"2024-01-01T00:00:00Z"}`
	}
	completed := func(name string) string { // the code decides which of them started first
		const one = `{"EventType":"TaskCompleted","Result":"r","Timestamp":"2024-01-01T00:00:02Z","ScheduledTime":"2024-01-01T00:00:00Z","FunctionName":"`
		return one + `Charge"},` + one + name + `"}`
	}
	for _, c := range []struct{ history, first, changed string }{
		{begun + start, scheduled("Reserve"), scheduled("Notify")},
		{begun + start, scheduled("Escalate"), scheduled("Notify")},
		{begun + marker + start, scheduled("Escalate"), scheduled("Reserve")},
		{shown, completed("Reserve"), completed("Notify")},
		{strings.Replace(marker, `"EventId":-1,`, "", 1) + shown, completed("Escalate"), completed("Reserve")},
	} {
		durabletest.Replay(t, all, file(t, "["+c.history+c.first+"]"))
		contains(t, fails(t, func(tb durabletest.TB) { durabletest.Replay(tb, all, file(t, "["+c.history+c.changed+"]")) }), "the code did: an activity task named")
	}
}

// The code decides the order of calls that started at the same time.
func TestReplay_RestoresTheOrderOfSimultaneousCalls(t *testing.T) {
	t.Parallel()
	events := `[
		{"EventType":"ExecutionStarted","Input":"{\"id\":\"1\"}","Timestamp":"2024-01-01T00:00:00Z","FunctionName":"Race"},
		{"EventType":"EventSent","InstanceId":"x","Name":"note","Input":null,"Timestamp":"2024-01-01T00:00:01Z"},
		{"EventType":"TimerCreated","FireAt":"2024-01-01T00:01:00Z","Timestamp":"2024-01-01T00:00:01Z"},
		{"EventType":"TaskCompleted","Result":"r-1","Timestamp":"2024-01-01T00:00:02Z","ScheduledTime":"2024-01-01T00:00:01+00:00","FunctionName":"RESERVE","Input":null},
		{"EventType":"SubOrchestrationInstanceFailed","Reason":"no","Details":null,"FailureDetails":null,"Timestamp":"2024-01-01T00:00:03Z","ScheduledTime":"2024-01-01T00:00:01Z","FunctionName":"PlaceOrder","Input":null},
		{"EventType":"TaskFailed","Reason":"declined","Details":null,"FailureDetails":{"ErrorType":"E","ErrorMessage":"declined"},"Timestamp":"2024-01-01T00:00:04Z","ScheduledTime":"2024-01-01T00:00:01Z","FunctionName":"Charge","Input":null},
		{"EventType":"EventRaised","Name":"approval","Input":"{\"By\":\"ana\"}","Timestamp":"2024-01-01T00:00:05Z"},
		{"EventType":"TimerFired","FireAt":"2024-01-01T00:01:00Z","Timestamp":"2024-01-01T00:00:01Z"},
		{"EventType":"TaskScheduled","Name":"Escalate","Timestamp":"2024-01-01T00:01:01Z"}
	]`
	var seen []string
	race := func(ctx *durable.Context, o Order) (string, error) {
		charge := durable.CallActivity(ctx, Charge, o)
		child := durable.CallSubOrchestrator(ctx, PlaceOrder, o)
		reserve := durable.CallActivity(ctx, Reserve, o)
		timer := ctx.Timer(time.Minute)
		if err := durable.Event[durable.Void]("note").RaiseFrom(ctx, "x", durable.Void{}); err != nil {
			return "", err
		}
		reserved, err := reserve.Await()
		seen = []string{reserved, text(err)}
		_, err = child.Await()
		seen = append(seen, text(err))
		_, err = charge.Await()
		seen = append(seen, text(err))
		d, err := Approval.Wait(ctx).Await()
		seen = append(seen, d.By, text(err))
		if _, err := timer.Await(); err != nil {
			return "", err
		}
		seen = append(seen, ctx.Now().Format(time.TimeOnly))
		return durable.CallActivity(ctx, Escalate, o).Await()
	}
	durabletest.Replay(t, append([]*durable.Registration{durable.Orchestrator("Race", race)}, functions...), file(t, events))
	want := []string{
		"r-1", "", "Sub-orchestration 'PlaceOrder' (#1) failed with an unhandled exception: no",
		"Task 'Charge' (#0) failed with an unhandled exception: declined", "ana", "", "00:01:00",
	}
	if diff := cmp.Diff(seen, want); diff != "" {
		t.Errorf("the orchestrator saw (-got +want):\n%s", diff)
	}
}

// Events that arrive together with the event that ends an execution are in the same episode.
func TestReplay_AcceptsEventsThatArriveWithTheEnd(t *testing.T) {
	t.Parallel()
	const order = `{"EventType":"ExecutionStarted","Input":"{\"id\":\"1\"}","Timestamp":"2024-01-01T00:00:00Z","FunctionName":"Ship"}`
	const carried = `{"EventType":"TaskCompleted","Result":"x","Timestamp":"2024-01-01T00:00:02Z","ScheduledTime":"2024-01-01T00:00:01Z","FunctionName":"Carry"}`
	const terminated = `{"EventType":"ExecutionTerminated","Input":"enough","Timestamp":"2024-01-01T00:00:02Z"}`
	const event = `{"EventType":"EventRaised","Name":"e","Input":"1","Timestamp":"2024-01-01T00:00:03Z"}`
	for end, arrivals := range map[string]string{
		"Completed":  carried + "," + event,
		"Terminated": terminated + "," + carried + "," + event,
	} {
		text := "[" + order + "," + arrivals + `,{"EventType":"ExecutionCompleted","OrchestrationStatus":"` + end + `","Result":null,"Timestamp":"2024-01-01T00:00:03Z"}]`
		durabletest.Replay(t, functions, file(t, text))
	}
}

func TestReplay_AcceptsAnInstanceTerminatedBeforeItsFirstEpisode(t *testing.T) {
	t.Parallel()
	head := history.NewHeader(time.Now())
	durabletest.ReplayEvents(t, functions, []history.Event{
		&history.OrchestratorStarted{Header: head},
		&history.ExecutionStarted{Header: head, Name: "Backup", Input: new("1")},
		&history.ExecutionTerminated{Header: head, Reason: new("enough")},
		&history.ExecutionCompleted{Header: history.Header{EventID: 0}, Status: history.Terminated, Result: new("enough")},
		&history.OrchestratorCompleted{Header: head},
	})
	durabletest.Replay(t, functions, file(t, `[
		{"EventType":"ExecutionStarted","Input":"1","Timestamp":"2024-01-01T00:00:00Z","FunctionName":"Backup"},
		{"EventType":"ExecutionTerminated","Input":"enough","Timestamp":"2024-01-01T00:00:02Z"},
		{"EventType":"ExecutionCompleted","OrchestrationStatus":"Terminated","Result":"enough","Timestamp":"2024-01-01T00:00:03Z"}
	]`))
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestReplayEvents_AcceptsTheHistoryOfARun(t *testing.T) {
	t.Parallel()
	run := func() *durabletest.Instance[string] {
		return durabletest.Start(durabletest.New(t, functions...), Approve, Order{ID: "42"})
	}
	i := run()
	durabletest.ReplayEvents(t, functions, i.History())
	if _, err := i.Wait(); err != nil {
		t.Fatal(err)
	}
	durabletest.ReplayEvents(t, functions, i.History())

	suspended := run()
	suspended.Suspend("audit")
	durabletest.ReplayEvents(t, functions, suspended.History())

	terminated := run()
	terminated.Terminate("enough")
	durabletest.ReplayEvents(t, functions, terminated.History())

	got := fails(t, func(t durabletest.TB) { durabletest.ReplayEvents(t, functions, []history.Event{}) })
	contains(t, got, "the history has no ExecutionStarted")
}
