//go:build unix

package main_test

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
)

// A deed is an orchestration that is killed in the middle.
type deed struct {
	name         string
	orchestrator string
	steps        int
	inTurn       bool // a step is first run when those before it have been
	family       int  // how many instances it is made of
}

var deeds = []deed{
	{"sequence", "Steps", 3, true, 1},
	{"fan-out of 10", "Together", 10, false, 1},
	{"timer", "Rests", 3, true, 1},
	{"sub-orchestration", "ChildSteps", 3, true, 2},
	{"continue-as-new", "Stages", 4, true, 1},
}

func (d deed) want() string {
	var squares []string
	for n := 1; n <= d.steps; n++ {
		squares = append(squares, strconv.Itoa(n*n))
	}
	return "[" + strings.Join(squares, ",") + "]"
}

// killLease is how long partitions and messages of a process that was killed
// are out of reach.
const killLease = 10 * time.Second

// Five hubs, each with a process that is killed again and again while it runs
// one of each deed. DURABLE_KILLS says how often in all, DURABLE_KILLS_SEED
// chooses other points, DURABLE_KILLS_LEASE other leases, such as 30s, which is
// what they are by default.
func TestCrash_KilledAtRandomPointsEverythingCompletesOnce(t *testing.T) {
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
			v := newVictim(t, lease, rand.New(rand.NewPCG(seed, uint64(i))))
			v.carryOut() // makes the hub
			for n := i; n < kills; n += hubs {
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

// A victim is an app that is killed, and its hub.
type victim struct {
	*testing.T
	connection, hub, root string
	lease                 time.Duration
	chance                *rand.Rand
	app                   *app

	round     int             // of deeds
	accepted  map[string]bool // the starts, by instance
	kills     int
	midst     map[string]int // kills that found a deed begun and not ended
	positions map[string][]int
}

func newVictim(t *testing.T, lease time.Duration, chance *rand.Rand) *victim {
	t.Helper()
	v := &victim{
		T: t, connection: azuritetest.Start(t), hub: newHub(), lease: lease, chance: chance,
		accepted: map[string]bool{}, midst: map[string]int{}, positions: map[string][]int{},
	}
	v.root = newRoot(t, v.hub, v.connection, func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["maxQueuePollingInterval"] = "00:00:01"
	})
	v.restart()
	return v
}

func (v *victim) restart() {
	v.Helper()
	v.app = startStandalone(v.T, e2eApp, v.root, "E2E_LEASE="+v.lease.String())
}

func (v *victim) id(d deed) string    { return fmt.Sprintf("%s-%d", d.orchestrator, v.round) }
func (v *victim) url(d deed) string   { return "/api/durabletask/instances/" + v.id(d) }
func (v *victim) trace(d deed) string { return filepath.Join(v.root, v.id(d)) }

// begin starts a deed.
func (v *victim) begin(d deed) {
	walk := map[string]any{"steps": d.steps, "delayMillis": stepTime.Milliseconds(), "trace": v.trace(d)}
	got, err := v.app.try(http.MethodPost, "/api/durabletask/orchestrators/"+d.orchestrator+"/"+v.id(d), walk)
	v.accepted[v.id(d)] = err == nil && got.status == http.StatusAccepted
}

// insist starts deeds again whose start got no answer, until they run. What was
// accepted must do so by itself.
func (v *victim) insist() {
	v.Helper()
	for _, d := range deeds {
		eventually(v.T, 4*time.Minute, "the start of "+v.id(d), func() bool {
			if v.accepted[v.id(d)] {
				return true
			}
			there, err := v.app.try(http.MethodGet, v.url(d), nil)
			switch {
			case err != nil:
				return false
			case there.status < 300 && decode[status](v.T, there.body).RuntimeStatus != "Pending":
				return true
			}
			v.begin(d)
			time.Sleep(time.Second)
			return false
		})
	}
}

// carryOut carries all deeds out.
func (v *victim) carryOut() {
	v.Helper()
	v.insist()
	v.finish()
}

// carryOutAndKill carries all deeds out by a process that is killed at a random
// point, and sometimes again while it recovers.
func (v *victim) carryOutAndKill() {
	v.Helper()
	v.round++
	order := v.chance.Perm(len(deeds))
	begun := make(chan struct{})
	go func() { // ends when the process is dead
		defer close(begun)
		for _, i := range order {
			v.begin(deeds[i])
		}
	}()
	v.awaitSteps(v.chance.IntN(totalSteps()))
	v.kill()
	<-begun
	v.restart()
	if v.chance.IntN(3) == 0 {
		v.awaitSteps(v.chance.IntN(totalSteps()))
		v.kill()
		v.restart()
	}
	v.insist()
	v.finish()
}

// stepTime is how long a step takes.
const stepTime = 100 * time.Millisecond

func totalSteps() (n int) {
	for _, d := range deeds {
		n += d.steps
	}
	return n
}

// awaitSteps waits until so many steps of the round have begun, or nothing has
// happened for twice the time of a lease, and then a random part of a step.
func (v *victim) awaitSteps(n int) {
	v.Helper()
	seen := 0
	for since := time.Now(); seen < n && time.Since(since) < 2*v.lease; time.Sleep(5 * time.Millisecond) {
		before := seen
		seen = 0
		for _, d := range deeds {
			steps, _ := traced(v.T, v.trace(d))
			seen += len(steps)
		}
		if seen != before {
			since = time.Now()
		}
	}
	time.Sleep(time.Duration(v.chance.Int64N(int64(stepTime))))
}

// kill kills the process and notes where that found the deeds.
func (v *victim) kill() {
	v.Helper()
	v.app.kill()
	v.kills++
	instances := queryRows(v.T, v.connection, v.hub+"Instances", "")
	for _, d := range deeds {
		i := slices.IndexFunc(instances, func(row map[string]any) bool { return row["PartitionKey"] == v.id(d) })
		if i < 0 || instances[i]["RuntimeStatus"] == "Completed" {
			continue
		}
		v.midst[d.name]++
		steps, _ := traced(v.T, v.trace(d))
		v.positions[d.name] = append(v.positions[d.name], len(steps))
	}
}

func (v *victim) report() {
	v.Helper()
	v.Logf("%d kills; found in the middle: %v; after how many steps: %v", v.kills, v.midst, v.positions)
	if len(v.midst) == 0 {
		v.Error("no kill found anything in the middle")
	}
}

// complete waits for the end of all deeds.
func (v *victim) complete() {
	v.Helper()
	for _, d := range deeds {
		v.app.completed(v.url(d), 4*time.Minute, d.want())
	}
}

// finish waits for the end of all deeds, and checks what is left of them.
func (v *victim) finish() {
	v.Helper()
	v.complete()
	for _, d := range deeds {
		v.checkSteps(d)
		for _, id := range []string{v.id(d), v.id(d) + "-child"}[:d.family] {
			v.checkHistory(id)
		}
	}
	eventually(v.T, 2*time.Minute+2*v.lease, "empty queues", func() bool { return v.messages() == 0 })
	family := 0
	for _, d := range deeds {
		family += d.family
	}
	if got := len(queryRows(v.T, v.connection, v.hub+"Instances", "")); got != (v.round+1)*family {
		v.Errorf("the hub has %d instances, want %d", got, (v.round+1)*family)
	}
}

// checkSteps checks that all steps were taken.
func (v *victim) checkSteps(d deed) {
	v.Helper()
	if d.inTurn {
		checkTrace(v.T, v.trace(d), d.steps)
		return
	}
	steps, _ := traced(v.T, v.trace(d))
	if got := len(slices.Compact(slices.Sorted(slices.Values(steps)))); got != d.steps {
		v.Errorf("%s took %d different steps, want %d", v.id(d), got, d.steps)
	}
}

// checkHistory checks that the history of an instance has nothing twice, and
// nothing of an earlier execution.
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
		case "OrchestratorStarted", "OrchestratorCompleted":
		case "ExecutionStarted", "ExecutionCompleted":
			counts[kind]++
		case "TaskScheduled", "TimerCreated", "SubOrchestrationInstanceCreated":
			counts[fmt.Sprint("decision ", row["EventId"])]++
		case "TaskCompleted", "SubOrchestrationInstanceCompleted":
			counts[fmt.Sprint("result ", row["TaskScheduledId"])]++
		case "TimerFired":
			counts[fmt.Sprint("result ", row["TimerId"])]++
		default:
			v.Errorf("history of %s has an event %s", id, kind)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if counts[what] != 1 {
			v.Errorf("history of %s has %s %d times", id, what, counts[what])
		}
		if n, ok := strings.CutPrefix(what, "result "); ok && counts["decision "+n] == 0 {
			v.Errorf("history of %s has %s, of nothing", id, what)
		}
	}
	if counts["ExecutionStarted"] != 1 || counts["ExecutionCompleted"] != 1 || len(executions) != 1 {
		v.Errorf("history of %s: %v of executions %v, want one that began and ended", id, counts, executions)
	}
}

// messages returns how many messages are in the hub's queues, hidden ones
// included.
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
