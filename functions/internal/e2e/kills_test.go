//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// scenario is an orchestration that is killed in the middle.
type scenario struct {
	name         string
	orchestrator string
	steps        int
	inTurn       bool   // each step first runs after the previous steps
	child        string // suffix of the child's instance ID; empty without a child
	counts       bool   // the orchestration has its own counter entity
	events       bool   // an event triggers each step
}

var scenarios = []scenario{
	{name: "sequence", orchestrator: "Steps", steps: 3, inTurn: true},
	{name: "fan-out of 10", orchestrator: "Together", steps: 10},
	{name: "timer", orchestrator: "Rests", steps: 3, inTurn: true},
	{name: "sub-orchestration", orchestrator: "ChildSteps", steps: 3, inTurn: true, child: "-child"},
	{name: "continue-as-new", orchestrator: "Stages", steps: 4, inTurn: true},
	{name: "entity", orchestrator: "Tallies", steps: 3, inTurn: true, counts: true},
	{name: "events", orchestrator: "Hears", steps: 3, inTurn: true, events: true},
}

// errand is one instance of a scenario.
type errand struct {
	scenario
	id, trace string
	accepted  bool // the start was acknowledged
	raised    int  // number of acknowledged events
}

func (e *errand) url() string { return "/api/durabletask/instances/" + e.id }

// orchestrations returns the IDs of the errand's orchestrations.
func (e *errand) orchestrations() []string {
	if e.child != "" {
		return []string{e.id, e.id + e.child}
	}
	return []string{e.id}
}

func (d scenario) want() string {
	var squares []string
	for n := 1; n <= d.steps; n++ {
		squares = append(squares, strconv.Itoa(n*n))
	}
	return "[" + strings.Join(squares, ",") + "]"
}

// killLease is the time for which partitions and messages of a killed process stay locked.
const killLease = 10 * time.Second

// Each of five hubs has a process that is killed repeatedly while it runs one instance of each scenario.
// DURABLE_KILLS is the total number of kills. DURABLE_KILLS_SEED selects other times for the kills.
// DURABLE_KILLS_LEASE sets the lease duration, for example to 30s, the default of the app.
func TestCrash_InstancesCompleteOnceWhenTheProcessIsKilledAtRandom(t *testing.T) {
	t.Parallel()
	kills, seed, lease := 10, uint64(1), killLease
	if text := os.Getenv("DURABLE_KILLS"); text != "" {
		kills = parsed(t, text, strconv.Atoi)
	}
	if text := os.Getenv("DURABLE_KILLS_SEED"); text != "" {
		seed = parsed(t, text, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	}
	if text := os.Getenv("DURABLE_KILLS_LEASE"); text != "" {
		lease = parsed(t, text, time.ParseDuration)
	}
	const hubs = 5
	for i := range hubs {
		t.Run(fmt.Sprint("hub ", i), func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				processtest.SkipInShortRuns(t)
			}
			t.Logf("DURABLE_KILLS_SEED=%d repeats the kills", seed)
			v := newVictim(t, azuritetest.Start(t), lease, rand.New(rand.NewPCG(seed, uint64(i))))
			v.app = v.start()
			v.prepare(0)
			v.carryOut() // creates the hub
			for n := i; n < kills; n += hubs {
				v.prepare(n + 1)
				v.carryOutAndKill()
			}
			v.report()
		})
	}
}

func parsed[T any](t *testing.T, text string, parse func(string) (T, error)) T {
	t.Helper()
	v, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// victim is an app that is killed, with its hub.
type victim struct {
	*testing.T
	connection, hub, root string
	lease                 time.Duration
	chance                *rand.Rand
	app                   *app

	errands   []*errand // of the current round
	instances int       // expected number of instances in the hub, including entities
	kills     int
	midst     map[string]int // kills during a running instance, by scenario
	positions map[string][]int
}

// newVictim returns a victim whose processes use the connection string through. The test itself connects to
// the storage directly.
func newVictim(t *testing.T, through string, lease time.Duration, chance *rand.Rand) *victim {
	t.Helper()
	v := &victim{
		T: t, connection: azuritetest.Start(t), hub: newHub(), lease: lease, chance: chance,
		midst: map[string]int{}, positions: map[string][]int{},
	}
	v.root = newRoot(t, v.hub, through, func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["maxQueuePollingInterval"] = "00:00:01"
	})
	return v
}

// start starts a process.
func (v *victim) start() *app {
	v.Helper()
	return launchStandalone(v.T, e2eApp, v.root, "E2E_LEASE="+v.lease.String())
}

// prepare creates the errands of the given rounds, one for each scenario.
func (v *victim) prepare(rounds ...int) {
	v.errands = nil
	for _, round := range rounds {
		for _, d := range scenarios {
			id := fmt.Sprintf("%s-%d", d.orchestrator, round)
			e := &errand{scenario: d, id: id, trace: filepath.Join(v.root, id)}
			v.errands = append(v.errands, e)
			v.instances += len(e.orchestrations())
			if d.counts {
				v.instances++
			}
		}
	}
}

// begin starts an errand. A conflict means that an earlier attempt without a response has started it.
func (e *errand) begin(a *app) {
	walk := map[string]any{"steps": e.steps, "delayMillis": stepTime.Milliseconds(), "trace": e.trace}
	got, err := a.try(http.MethodPost, "/api/durabletask/orchestrators/"+e.orchestrator+"/"+e.id, walk)
	e.accepted = err == nil && (got.status == http.StatusAccepted || got.status == http.StatusConflict)
}

// raise raises the pending events of an errand. It reports whether all events are acknowledged.
func (e *errand) raise(a *app) bool {
	for e.events && e.raised < e.steps {
		number := e.raised + 1
		got, err := a.try(http.MethodPost, fmt.Sprintf("%s/raiseEvent/Step%d", e.url(), number), number)
		if err != nil || got.status != http.StatusAccepted && got.status != http.StatusGone {
			return false
		}
		e.raised = number
	}
	return true
}

// insist repeats the starts without a response until their instances run, and raises the events. An
// acknowledged start must run without a repetition.
func (v *victim) insist() {
	v.Helper()
	for _, e := range v.errands {
		eventually(v.T, time.Minute, "the start of "+e.id, func() bool {
			if e.accepted {
				return true
			}
			there, err := v.app.try(http.MethodGet, e.url(), nil)
			switch {
			case err != nil:
				return false
			case there.status < 300 && decode[status](v.T, there.body).RuntimeStatus != "Pending":
				return true
			}
			e.begin(v.app)
			time.Sleep(time.Second)
			return false
		})
		eventually(v.T, time.Minute, "the events of "+e.id, func() bool { return e.raise(v.app) })
	}
}

// carryOut runs all errands to completion.
func (v *victim) carryOut() {
	v.Helper()
	v.insist()
	v.finish()
}

// carryOutAndKill runs all errands and kills the process at a random time, and sometimes again during the
// recovery.
func (v *victim) carryOutAndKill() {
	v.Helper()
	order := v.chance.Perm(len(v.errands))
	begun := make(chan struct{})
	go func(a *app) { // ends when the process is dead
		defer close(begun)
		for _, i := range order {
			v.errands[i].begin(a)
			v.errands[i].raise(a)
		}
	}(v.app)
	v.awaitSteps(v.chance.IntN(totalSteps()))
	v.kill()
	<-begun
	v.app = v.start()
	if v.chance.IntN(3) == 0 {
		v.awaitSteps(v.chance.IntN(totalSteps()))
		v.kill()
		v.app = v.start()
	}
	v.insist()
	v.finish()
}

// stepTime is the duration of a step.
const stepTime = 100 * time.Millisecond

func totalSteps() (n int) {
	for _, d := range scenarios {
		n += d.steps
	}
	return n
}

// awaitSteps waits until n steps of the round have started, or until no step has started for two leases. Then
// it waits for a random part of a step.
func (v *victim) awaitSteps(n int) {
	v.Helper()
	seen := 0
	for since := time.Now(); seen < n && time.Since(since) < 2*v.lease; time.Sleep(5 * time.Millisecond) {
		before := seen
		seen = 0
		for _, e := range v.errands {
			steps, _ := traced(v.T, e.trace)
			seen += len(steps)
		}
		if seen != before {
			since = time.Now()
		}
	}
	time.Sleep(time.Duration(v.chance.Int64N(int64(stepTime))))
}

// kill kills the process and records which scenarios were running.
func (v *victim) kill() {
	v.Helper()
	v.app.kill()
	v.kills++
	instances := queryRows(v.T, v.connection, v.hub+"Instances", "")
	for _, e := range v.errands {
		i := slices.IndexFunc(instances, func(row map[string]any) bool { return row["PartitionKey"] == e.id })
		if i < 0 || instances[i]["RuntimeStatus"] == "Completed" {
			continue
		}
		v.midst[e.name]++
		steps, _ := traced(v.T, e.trace)
		v.positions[e.name] = append(v.positions[e.name], len(steps))
	}
}

func (v *victim) report() {
	v.Helper()
	v.Logf("%d kills; during running instances: %v; completed steps: %v", v.kills, v.midst, v.positions)
	if len(v.midst) == 0 {
		v.Error("no kill happened while an instance was running")
	}
}

// complete waits until all errands have completed.
func (v *victim) complete() {
	v.Helper()
	for _, e := range v.errands {
		v.app.completed(e.url(), time.Minute, e.want())
	}
}

// finish waits until all errands have completed and all queues are empty, and checks the hub.
func (v *victim) finish() {
	v.Helper()
	v.complete()
	v.awaitEmptyQueues()
	v.check()
}

func (v *victim) awaitEmptyQueues() {
	v.Helper()
	eventually(v.T, 2*time.Minute+2*v.lease, "empty queues", func() bool { return v.messages() == 0 })
}

// check checks the traces, histories and entities of completed errands.
func (v *victim) check() {
	v.Helper()
	for _, e := range v.errands {
		v.checkSteps(e)
		for _, id := range e.orchestrations() {
			v.checkHistory(id)
		}
		if e.counts {
			v.app.answers("/api/durabletask/entities/Counter/"+e.id, http.StatusOK, fmt.Sprintf(`{"total":%d}`, e.steps*e.steps))
		}
	}
	if got := len(queryRows(v.T, v.connection, v.hub+"Instances", "")); got != v.instances {
		v.Errorf("the hub has %d instances, want %d", got, v.instances)
	}
}

// checkSteps checks that all steps of an errand have run.
func (v *victim) checkSteps(e *errand) {
	v.Helper()
	if e.inTurn {
		checkTrace(v.T, e.trace, e.steps)
		return
	}
	steps, _ := traced(v.T, e.trace)
	if got := len(slices.Compact(slices.Sorted(slices.Values(steps)))); got != e.steps {
		v.Errorf("%s took %d different steps, want %d", e.id, got, e.steps)
	}
}

// checkHistory checks that the history of an instance has one execution and no duplicate events.
func (v *victim) checkHistory(id string) {
	v.Helper()
	counts := map[string]int{}
	executions := map[string]bool{}
	for _, row := range readRows(v.T, v.connection, v.hub+"History", id) {
		executions[fmt.Sprint(row["ExecutionId"])] = true
		if row["RowKey"] == "sentinel" {
			continue
		}
		switch kind := fmt.Sprint(row["EventType"]); kind {
		case "OrchestratorStarted", "OrchestratorCompleted", "EventRaised": // a client's event may be delivered twice
		case "ExecutionStarted", "ExecutionCompleted":
			counts[kind]++
		case "TaskScheduled", "TimerCreated", "SubOrchestrationInstanceCreated", "EventSent":
			counts[fmt.Sprint("decision ", row["EventId"])]++
		case "TaskCompleted", "SubOrchestrationInstanceCompleted":
			counts[fmt.Sprint("result ", row["TaskScheduledId"])]++
		case "TimerFired":
			counts[fmt.Sprint("result ", row["TimerId"])]++
		default:
			v.Errorf("history of %s has an unexpected event %s", id, kind)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if counts[what] != 1 {
			v.Errorf("history of %s has %s %d times", id, what, counts[what])
		}
		if n, ok := strings.CutPrefix(what, "result "); ok && counts["decision "+n] == 0 {
			v.Errorf("history of %s has %s without its decision", id, what)
		}
	}
	if counts["ExecutionStarted"] != 1 || counts["ExecutionCompleted"] != 1 || len(executions) != 1 {
		v.Errorf("history of %s: %v of executions %v, want one execution with a start and an end", id, counts, executions)
	}
}

// messages returns the number of messages in the hub's queues, including hidden ones.
func (v *victim) messages() int {
	v.Helper()
	service, err := azqueue.NewServiceClientFromConnectionString(v.connection, nil)
	if err != nil {
		v.Fatal(err)
	}
	total := 0
	prefix := strings.ToLower(v.hub) + "-"
	for pages := service.NewListQueuesPager(&azqueue.ListQueuesOptions{Prefix: &prefix}); pages.More(); {
		page, err := pages.NextPage(v.Context())
		if err != nil {
			v.Fatal(err)
		}
		for _, q := range page.Queues {
			properties, err := service.NewQueueClient(*q.Name).GetProperties(v.Context(), nil)
			if err != nil {
				v.Fatal(err)
			}
			total += int(*properties.ApproximateMessagesCount)
		}
	}
	return total
}
