package incidents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/disk"
)

// The functions of the workers in calm times.
var calm = []*durable.Registration{durable.Orchestrator("Order", order), durable.Activity("Ship", ship), durable.Orchestrator("Approval", approval)}

func order(ctx *durable.Context, item string) (string, error) {
	ctx.Sleep(20 * time.Second)
	return durable.CallActivity(ctx, ship, item).Await()
}

func ship(_ context.Context, item string) (string, error) { return item + " shipped", nil }

const answer = durable.Event[string]("Answer")

func approval(ctx *durable.Context, _ string) (string, error) { return answer.Wait(ctx).Await() }

// start starts an instance.
func (l *lab) start(client *durable.Client, function string, id durable.InstanceID) {
	l.Helper()
	if _, err := client.StartByName(l.Context(), function, json.RawMessage(`"book"`), id); err != nil {
		l.Fatal(err)
	}
}

// order completes an order.
func (l *lab) order(client *durable.Client, id durable.InstanceID) {
	l.Helper()
	l.start(client, "Order", id)
	l.await(client, id, history.Completed)
}

// In the calm hour, instances run and wait, and a deployment replaces the worker. The first minutes
// include the creation of the hub.
func TestAlerts_NoneFiresInACalmHour(t *testing.T) {
	t.Parallel()
	needsPromtool(t)
	for name, in := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := inLab(t, func(l *lab) {
				client := l.join("old", in, calm, durable.Config{})
				l.start(client, "Approval", "waits")
				for i := range 8 {
					l.order(client, durable.InstanceID(fmt.Sprint("before-", i)))
					l.pass(3 * time.Minute)
				}
				l.leave("old")
				client = l.join("new", in, calm, durable.Config{})
				for i := range 8 {
					l.order(client, durable.InstanceID(fmt.Sprint("after-", i)))
					l.pass(3 * time.Minute)
				}
			})
			if l.end() < time.Hour-5*time.Minute {
				t.Errorf("the hour had %v", l.end())
			}
			for name, q := range azureQueries(t) {
				if found := q.matches(append(l.log.lines(), l.logJSON.lines()...)); len(found) > 0 {
					t.Errorf("the Azure alert %s fires for %q", name, found)
				}
			}
			l.promtool(t,
				check{expr: `count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[3h]))`, at: l.end()},
				check{expr: `count(max_over_time(durabletask_work_items_total{durabletask_type="orchestration"}[3h])) > bool 0`, at: l.end(), want: map[string]float64{"{}": 1}},
			)
		})
	}
}

// An incident is a cause, and the alert that reports it.
type incident struct {
	name, alert string
	azure       string // alert of the Bicep template; empty if log lines do not report the incident
	// cause runs the workers. Calm times precede the call of begin.
	cause func(l *lab, begin func())
}

var incidents = []incident{
	{"an orchestration fails", "DurableOrchestrationFailed", "failed", func(l *lab, begin func()) {
		client := l.join("w", inFile, append(slices.Clip(calm), durable.Orchestrator("Fails", func(*durable.Context, string) (string, error) {
			return "", errors.New("out of stock")
		})), durable.Config{})
		l.order(client, "calm")
		begin()
		l.start(client, "Fails", "fails")
		l.await(client, "fails", history.Failed)
		l.pass(5 * time.Minute)
	}},
	{"starts are not processed", "DurableStartsWait", "", startsOfAnUnknownFunction},
	{"a deployment lacks a function", "DurableInstancesWait", "", startsOfAnUnknownFunction},
	{"activities are slower than their starts", "DurableBacklog", "", func(l *lab, begin func()) {
		startSlowOrders(l, begin)
		l.pass(30 * time.Minute)
	}},
	{"activities are slower than their starts, and each fourth look at the queues fails", "DurableBacklog", "", func(l *lab, begin func()) {
		startSlowOrders(l, begin)
		var failed atomic.Int32
		fail := func(r azsim.Request) azsim.Fault {
			if r.Operation == "PeekMessages" {
				failed.Add(1)
				return azsim.FailBefore
			}
			return azsim.None
		}
		for range 15 {
			l.pass(3 * scrapeEvery)
			l.fail(fail)
			l.pass(scrapeEvery)
			l.fail(nil)
		}
		if failed.Load() < 15 {
			l.Errorf("%d looks failed, want 15", failed.Load())
		}
	}},
	{"no worker can own a partition", "DurablePartitionWithoutOwner", "", func(l *lab, begin func()) {
		client := l.join("first", inQueues, calm, durable.Config{})
		l.order(client, "calm")
		begin()
		l.leave("first")
		var refused atomic.Int32
		l.fail(func(r azsim.Request) azsim.Fault {
			if r.Service != azsim.QueueService && strings.Contains(r.Path+string(r.Body), "control-01") {
				refused.Add(1)
				return azsim.Throttle
			}
			return azsim.None
		})
		l.join("second", inQueues, calm, durable.Config{})
		l.pass(15 * time.Minute)
		l.fail(nil)
		if refused.Load() == 0 {
			l.Error("no request was refused")
		}
	}},
	{"storage limits the requests", "DurableStorageErrors", "", func(l *lab, begin func()) {
		client := l.join("w", inLogs, calm, durable.Config{})
		l.order(client, "calm")
		begin()
		l.fail(func(r azsim.Request) azsim.Fault {
			if r.Roll%4 == 0 {
				return azsim.Throttle
			}
			return azsim.None
		})
		l.pass(15 * time.Minute)
		l.fail(nil)
	}},
	{"storage is unreachable", "DurableStorageErrors", "storage", func(l *lab, begin func()) {
		client := l.join("w", inQueues, calm, durable.Config{})
		l.order(client, "calm")
		begin()
		l.fail(func(azsim.Request) azsim.Fault { return azsim.FailBefore })
		l.pass(15 * time.Minute)
		l.fail(nil)
	}},
	{"code does not match histories, and instances fail", "DurableNonDeterminism", "nondeterminism", func(l *lab, begin func()) { changedCode(l, begin, false) }},
	{"code does not match histories, and instances wait", "DurableNonDeterminism", "nondeterminism", func(l *lab, begin func()) { changedCode(l, begin, true) }},
	{"an orchestrator waits for a channel", "DurableOrchestratorBlocked", "", func(l *lab, begin func()) {
		release := make(chan struct{})
		client := l.join("w", inFile, append(slices.Clip(calm), durable.Orchestrator("Blocks", func(*durable.Context, string) (string, error) {
			<-release
			return "", nil
		})), durable.Config{})
		l.order(client, "calm")
		begin()
		l.start(client, "Blocks", "blocks")
		l.pass(10 * time.Minute)
		close(release)
	}},
	{"a queue has a message of another program", "DurableUndecodableMessages", "undecodable", func(l *lab, begin func()) {
		client := l.join("w", inQueues, calm, durable.Config{})
		l.order(client, "calm")
		begin()
		l.account.Put("lab-workitems", "not a message of a task hub", 0)
		l.pass(5 * time.Minute)
	}},
	{"the disk fills up", "DurableDiskSpace", "", func(l *lab, begin func()) {
		filling := &fullDisk{}
		filling.free.Store(50 << 30)
		l.Cleanup(disk.Replace(l.dir, filling))
		client := l.join("w", inFile, calm, durable.Config{})
		l.order(client, "calm")
		begin()
		filling.free.Store(200 << 20)
		l.pass(10 * time.Minute)
	}},
}

// startSlowOrders starts orders that take longer than the time between their starts.
func startSlowOrders(l *lab, begin func()) {
	l.Helper()
	slow := append(slices.Clip(calm), durable.Orchestrator("SlowOrder", slowOrder), durable.Activity("SlowShip", slowShip))
	client := l.join("w", inQueues, slow, durable.Config{MaxConcurrentActivities: 1})
	l.order(client, "calm")
	begin()
	for i := range 40 {
		l.start(client, "SlowOrder", durable.InstanceID(fmt.Sprint("order-", i)))
	}
}

func slowOrder(ctx *durable.Context, item string) (string, error) {
	return durable.CallActivity(ctx, slowShip, item).Await()
}

func slowShip(ctx context.Context, item string) (string, error) {
	select {
	case <-time.After(2 * time.Minute): // real time: none, because inLab runs the worker in a bubble
	case <-ctx.Done():
	}
	return item, ctx.Err()
}

// startsOfAnUnknownFunction starts instances that no worker can run.
func startsOfAnUnknownFunction(l *lab, begin func()) {
	client := l.join("w", inQueues, calm, durable.Config{UnknownFunctionTimeout: -1})
	l.order(client, "calm")
	begin()
	for i := range 3 {
		l.start(client, "Refund", durable.InstanceID(fmt.Sprint("refund-", i)))
	}
	l.pass(40 * time.Minute)
}

// changedCode replaces the code of an instance that waits for an event, and sends the event.
func changedCode(l *lab, begin func(), hold bool) {
	client := l.join("old", inFile, calm, durable.Config{})
	l.start(client, "Approval", "waits")
	l.order(client, "calm")
	begin()
	l.leave("old")
	changed := slices.Clone(calm)
	changed[2] = durable.Orchestrator("Approval", func(ctx *durable.Context, _ string) (string, error) {
		ctx.Sleep(time.Second)
		return answer.Wait(ctx).Await()
	})
	client = l.join("new", inFile, changed, durable.Config{HoldNonDeterministic: hold})
	l.pass(time.Minute)
	if err := answer.Raise(l.Context(), client, "waits", "yes"); err != nil {
		l.Fatal(err)
	}
	l.pass(5 * time.Minute)
}

// A fullDisk reports the free space that a test chooses.
type fullDisk struct {
	disk.System
	free atomic.Int64
}

func (d *fullDisk) Free(string) (int64, error) { return d.free.Load(), nil }

// Several workers receive a message that stays in its queue, also when its partition moves.
func TestAlerts_CountAnUndecodableMessageOnce(t *testing.T) {
	t.Parallel()
	needsPromtool(t)
	l := inLab(t, func(l *lab) {
		l.join("a", inQueues, calm, durable.Config{})
		client := l.join("b", inQueues, calm, durable.Config{})
		l.order(client, "calm")
		l.account.Put("lab-workitems", "not a message of a task hub", 0)
		l.account.Put("lab-control-00", "not a message of a task hub", 0)
		for range 4 {
			l.pass(35 * time.Minute)
			l.leave("a")
			l.join("a", inQueues, calm, durable.Config{})
		}
	})
	var value string
	for _, r := range alertRules(t) {
		if r.Alert == "DurableUndecodableMessages" {
			value = strings.TrimSuffix(strings.TrimSpace(r.Expr), " > 0")
		}
	}
	l.promtool(t,
		check{expr: `max_over_time(count(durabletask_messages_undecodable{durabletask_queue="lab-workitems"} > 0)[3h:30s])`, at: l.end(), want: map[string]float64{"{}": 2}},
		check{expr: "max_over_time((" + value + ")[3h:30s])", at: l.end(), want: map[string]float64{`{job="lab"}`: 2}},
	)
}

func TestAlerts_EachFiresInItsIncident(t *testing.T) {
	t.Parallel()
	needsPromtool(t)
	var have []string
	for _, i := range incidents {
		have = append(have, i.alert)
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			var begins time.Duration
			calmLines := 0
			l := inLab(t, func(l *lab) {
				i.cause(l, func() {
					l.pass(3 * time.Minute)
					begins, calmLines = l.end(), len(l.log.lines())
				})
			})
			if i.azure != "" {
				q := azureQueries(t)[i.azure]
				for _, log := range []*logLines{l.log, l.logJSON} {
					before, after := q.matches(log.lines()[:calmLines]), q.matches(log.lines()[calmLines:])
					if len(before) > 0 || len(after) == 0 {
						t.Errorf("the Azure alert %s finds %q before the incident, and %q in\n%s", i.azure, before, after, strings.Join(log.lines()[calmLines:], ""))
					}
				}
			}
			expr := fmt.Sprintf(`count(max_over_time(ALERTS{alertname=%q,alertstate="firing"}[3h])) > bool 0`, i.alert)
			l.promtool(t, check{expr: expr, at: begins}, check{expr: expr, at: l.end(), want: map[string]float64{"{}": 1}})
		})
	}
	var names []string
	for _, r := range alertRules(t) {
		names = append(names, r.Alert)
	}
	slices.Sort(have)
	slices.Sort(names)
	if have := slices.Compact(have); !slices.Equal(have, names) {
		t.Errorf("incidents cause %v, want %v", have, names)
	}
}
