package simulated_test

import (
	"context"
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/google/go-cmp/cmp"
)

var rewriteTable = flag.Bool("rewrite", false, "write the table of storage operations into DESIGN.md")

// quick is a child that returns immediately.
func quick(_ *durable.Context, _ int) (string, error) { return "", nil }

func withChild(ctx *durable.Context, _ int) (string, error) {
	return durable.CallSubOrchestrator(ctx, quick, 0).Await()
}

// threeSteps runs three steps of a number of milliseconds each.
func threeSteps(ctx *durable.Context, each int) (string, error) {
	for range 3 {
		if _, err := step(ctx, each).Await(); err != nil {
			return "", err
		}
	}
	return "", nil
}

// threeSlowing runs two steps of 50 ms and a step of a number of milliseconds.
func threeSlowing(ctx *durable.Context, last int) (string, error) {
	for _, each := range []int{50, 50, last} {
		if _, err := step(ctx, each).Await(); err != nil {
			return "", err
		}
	}
	return "", nil
}

// step runs a step of a number of milliseconds.
func step(ctx *durable.Context, each int) *durable.Task[int] {
	return durable.Step(ctx, "step", func(context.Context) (int, error) {
		time.Sleep(time.Duration(each) * time.Millisecond) // real time: it runs in a bubble
		return each, nil
	})
}

// polls calls a function of a second n times, 15 s apart.
func polls(ctx *durable.Context, n int) (string, error) {
	return durable.Poll(ctx, "poll", durable.PollPolicy{Interval: 15 * time.Second}, func(_ context.Context, call int) (string, bool, error) {
		time.Sleep(time.Second) // real time: it runs in a bubble
		return "", call >= n, nil
	}).Await()
}

// kinds are the counted storage operations.
var kinds = []struct{ name, operation, target string }{
	{"messages put", "PutMessage", ""},
	{"receives", "GetMessages", ""},
	{"messages deleted", "DeleteMessage", ""},
	{"History: read", "QueryEntities", "SimHistory"},
	{"History: append", "EntityGroupTransaction", "SimHistory"},
	{"Instances: read", "QueryEntities", "SimInstances"},
	{"Instances: insert", "InsertEntity", "SimInstances"},
	{"Instances: merge", "MergeEntity", "SimInstances"},
}

// A cost is an orchestration whose storage operations are measured.
type cost struct {
	name   string
	run    func(ctx *durable.Context, in int) (string, error)
	input  int
	event  bool
	varies bool // by a few, depending on what happens at the same time
	// startIsPut means that the first episode sends to another instance, so the start is enqueued.
	startIsPut bool
	dotnet     string
}

// costs are the measured orchestrations. The figures for .NET: a sequence of n activities takes 3
// operations on Instances at the start, 3(n+1) for control messages and 3n for work items. Each of
// its n+1 episodes takes a read, an append and a merge. A fan-out of n whose results arrive in k
// batches has 1+k episodes. A timer or an event is a message with an additional episode. A child
// has its own start, episode and result.
var costs = []cost{
	{name: "sequence of 3", run: three, dotnet: "36"},
	{name: "fan-out of 100", run: fanOut, input: 100, varies: true, dotnet: "509 + 4k, k from 4 to 100"},
	{name: "timer", run: nap, input: 1, dotnet: "15"},
	{name: "event", run: listen, event: true, dotnet: "15"},
	{name: "child", run: withChild, startIsPut: true, dotnet: "22"},
	{name: "3 steps in 30 ms", run: threeSteps, input: 10},
	{name: "in 150 ms", run: threeSteps, input: 50, startIsPut: true},
	{name: "in 3 s, the first in 50 ms", run: threeSlowing, input: 2900, startIsPut: true},
	{name: "in 3 s, the first in 1 s", run: threeSteps, input: 1000, startIsPut: true},
}

// measure runs a single orchestration in one process. It returns the number of operations of each
// kind, without empty polls, lease requests and status queries.
func measure(t *testing.T, cost cost, cfg durable.Config) (counts []int) {
	t.Helper()
	counts = make([]int, len(kinds))
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: 2 * time.Millisecond, MaxLatency: 2*time.Millisecond + 1})
		defer account.End()
		p := startProcessWith(t, account, "w1", func() {}, cfg)
		time.Sleep(2 * time.Minute) // the scans for interrupted starts are over
		before := len(account.Log())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		instance, err := durable.Start(ctx, p.client, cost.run, cost.input, durable.InstanceID("i"))
		if err != nil {
			t.Fatal(err)
		}
		if cost.event {
			time.Sleep(time.Second)
			if err := goOn.Raise(ctx, p.client, "i", ""); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		countOperations(account.Log()[before:], counts)
		if n := startsPut(account.Log()[before:], "i"); (n == 1) != cost.startIsPut || n > 1 {
			t.Errorf("%s: %d start messages were enqueued, want one: %t", cost.name, n, cost.startIsPut)
		}
		if _, err := instance.Wait(ctx); err != nil {
			t.Error(err)
		}
		p.stop()
	})
	return counts
}

// startsPut counts the enqueued start messages of an instance.
func startsPut(log []azsim.Entry, id string) (n int) {
	for _, e := range log {
		body := html.UnescapeString(string(e.Body))
		if e.Operation == "PutMessage" && strings.Contains(body, "ExecutionStartedEvent") && strings.Contains(body, `"OrchestrationInstance":{"$type":"DurableTask.Core.OrchestrationInstance","InstanceId":"`+id+`"`) && !strings.Contains(body, `"ParentInstance":{`) {
			n++
		}
	}
	return n
}

// table returns the table of all measurements. Figures that vary are taken from the previous table
// if they are close to it.
func table(t *testing.T, before string, cfg durable.Config) string {
	was := strings.Split(before, "\n")
	columns := make([][]int, len(costs))
	head, rule, totals, dotnet := "| |", "|---|", "| **total** |", "| .NET |"
	for i, cost := range costs {
		columns[i] = measure(t, cost, cfg)
		for n := 1; cost.varies && n < 4; n++ {
			for k, count := range measure(t, cost, cfg) {
				columns[i][k] = min(columns[i][k], count)
			}
		}
		sum := 0
		for k := range kinds {
			if cost.varies && 2+k < len(was) {
				columns[i][k] = steady(columns[i][k], cell(was[2+k], i))
			}
			sum += columns[i][k]
		}
		head += " " + cost.name + " |"
		rule += "--:|"
		totals += fmt.Sprintf(" **%d** |", sum)
		dotnet += " " + cost.dotnet + " |"
	}
	lines := []string{head, rule}
	for k, kind := range kinds {
		line := "| " + kind.name + " |"
		for _, column := range columns {
			line += fmt.Sprintf(" %d |", column[k])
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, totals, dotnet), "\n") + "\n"
}

// cell returns the number in a column of a table line, or 0.
func cell(line string, column int) (n int) {
	if cells := strings.Split(line, "|"); len(cells) > 2+column {
		_, _ = fmt.Sscan(cells[2+column], &n)
	}
	return n
}

// steady returns was if n is close to it, or else n. The number of receives in a fan-out depends on
// the order in which activities end: the least of four measurements is between 12 and 20 in most runs.
func steady(n, was int) int {
	if max(n, was)-min(n, was) <= 10 {
		return was
	}
	return n
}

// The table of operations in DESIGN.md equals the measurement.
func TestOperations_EqualTheTable(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		holdTable(t, "operations", func(t *testing.T, before string) string {
			return table(t, before, durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})
		})
	}
}

// holdTable compares the named table in DESIGN.md with the measured one. With -rewrite it writes
// the measured table to DESIGN.md. measure gets the previous table.
func holdTable(t *testing.T, name string, measure func(t *testing.T, before string) string) {
	const file = "../DESIGN.md"
	begin, end := "<!-- "+name+": written by the tests with -rewrite -->\n", "<!-- end of "+name+" -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	was, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no markers for the table %q", file, name)
	}
	got := measure(t, was)
	if *rewriteTable {
		if err := os.WriteFile(file, []byte(before+begin+got+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, got); diff != "" {
		t.Errorf("storage %s (-DESIGN.md +measured):\n%s", name, diff)
	}
}

// A sequence of three activities takes at most 12 operations; .NET takes 33 to 36.
func TestOperations_OfASequenceAreFew(t *testing.T) {
	total := 0
	for _, n := range measure(t, costs[0], durable.Config{}) {
		total += n
	}
	if total > 12 {
		t.Errorf("%d operations, want at most 12", total)
	}
}

// A poll whose instance leaves memory between two calls takes 2 operations for each call: its message is
// deleted and replaced. The worker delivers a message that is due soon without a receive, and has the
// history in its cache.
func TestOperations_OfAPollAreTwoPerCall(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		cfg := durable.Config{ExtendedSessionIdle: sessionIdle(sessions)}
		few, many := measure(t, cost{run: polls, input: 2, startIsPut: true}, cfg), measure(t, cost{run: polls, input: 6, startIsPut: true}, cfg)
		for k, kind := range kinds {
			want := 0
			switch kind.name {
			case "messages put", "messages deleted":
				want = 4
			}
			if many[k]-few[k] != want {
				t.Errorf("%d more operations for 4 more calls, want %d: %s", many[k]-few[k], want, kind.name)
			}
		}
	}
}
