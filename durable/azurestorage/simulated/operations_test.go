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

var rewriteTable = flag.Bool("rewrite", false, "write the table of storage operations into README.md")

// quick is a child that does nothing.
func quick(_ *durable.Context, _ int) (string, error) { return "", nil }

func withChild(ctx *durable.Context, _ int) (string, error) {
	return durable.CallSubOrchestrator(ctx, quick, 0).Await()
}

// kinds are the storage operations that are counted, by what they are for.
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

// costs are what is counted, with what .NET does for the same: n activities in a
// sequence take 3 Instances operations at the start, 3(n+1) for control
// messages, 3n for work items, and a read, an append and a merge in each of the
// n+1 episodes; a fan-out of n whose results come in k batches has 1+k
// episodes. A timer and an event are messages that have a second episode for
// themselves; a child has its own start, episode and result.
var costs = []struct {
	name   string
	run    func(ctx *durable.Context, in int) (string, error)
	input  int
	event  bool
	varies bool // by a few, with what happens to come at the same time
	// startIsPut says that the first episode sends to another instance, so that the start is
	// put into the queue.
	startIsPut bool
	dotnet     string
}{
	{name: "sequence of 3", run: three, dotnet: "36"},
	{name: "fan-out of 100", run: fanOut, input: 100, varies: true, dotnet: "509 + 4k, k from 4 to 100"},
	{name: "timer", run: nap, input: 1, dotnet: "15"},
	{name: "event", run: listen, event: true, dotnet: "15"},
	{name: "child", run: withChild, startIsPut: true, dotnet: "22"},
}

// measure runs an orchestration alone in one process, and returns how many
// operations of each kind it takes. Polls that find nothing, the upkeep of
// leases and questions about the status do not count.
func measure(t *testing.T, which int, cfg durable.Config) (counts []int) {
	t.Helper()
	cost := costs[which]
	counts = make([]int, len(kinds))
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: 2 * time.Millisecond, MaxLatency: 2*time.Millisecond + 1})
		defer account.Wait()
		p := startProcessWith(t, account, "w1", func() {}, cfg)
		time.Sleep(2 * time.Minute) // the looks for interrupted starts are over
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
			t.Errorf("%s: %d start messages were put into the queue, want one: %t", cost.name, n, cost.startIsPut)
		}
		if _, err := instance.Wait(ctx); err != nil {
			t.Error(err)
		}
		p.stop()
	})
	return counts
}

// startsPut counts the start messages of an instance.
func startsPut(log []azsim.Entry, id string) (n int) {
	for _, e := range log {
		body := html.UnescapeString(string(e.Body))
		if e.Operation == "PutMessage" && strings.Contains(body, "ExecutionStartedEvent") && strings.Contains(body, `"OrchestrationInstance":{"$type":"DurableTask.Core.OrchestrationInstance","InstanceId":"`+id+`"`) && !strings.Contains(body, `"ParentInstance":{`) {
			n++
		}
	}
	return n
}

// table measures everything. Where figures vary, those of the table before are
// kept if they are not far off.
func table(t *testing.T, before string, cfg durable.Config) string {
	was := strings.Split(before, "\n")
	columns := make([][]int, len(costs))
	head, rule, totals, dotnet := "| |", "|---|", "| **total** |", "| .NET |"
	for i, cost := range costs {
		columns[i] = measure(t, i, cfg)
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

// cell returns the number in a column of a line of the table, 0 if there is none.
func cell(line string, column int) (n int) {
	if cells := strings.Split(line, "|"); len(cells) > 2+column {
		_, _ = fmt.Sscan(cells[2+column], &n)
	}
	return n
}

// steady returns what a figure was if it is not far from that. How many receives bring
// the messages of a fan-out depends on which activities end before the next one begins:
// on two processors, with the race detector, it is 8 more than without.
func steady(n, was int) int {
	if max(n, was)-min(n, was) <= 10 {
		return was
	}
	return n
}

// The table in the README is what is measured.
func TestOperations_AreThoseOfTheTable(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		holdTable(t, "operations", func(t *testing.T, before string) string {
			return table(t, before, durable.Config{NoExtendedSessions: !sessions})
		})
	}
}

// holdTable compares the table of that name in the README with what is measured,
// or writes it there. Measure gets what the README has.
func holdTable(t *testing.T, name string, measure func(t *testing.T, before string) string) {
	const file = "../README.md"
	begin, end := "<!-- "+name+": written by the tests with -rewrite -->\n", "<!-- end of "+name+" -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	was, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the table of %s", file, name)
	}
	got := measure(t, was)
	if *rewriteTable {
		if err := os.WriteFile(file, []byte(before+begin+got+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, got); diff != "" {
		t.Errorf("storage %s (-README +measured):\n%s", name, diff)
	}
}

// A sequence of three activities takes at most 12 operations; .NET takes 33 to
// 36.
func TestOperations_OfASequenceAreFew(t *testing.T) {
	total := 0
	for _, n := range measure(t, 0, durable.Config{}) {
		total += n
	}
	if total > 12 {
		t.Errorf("%d operations, want at most 12", total)
	}
}
