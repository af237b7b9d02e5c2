// Package handover_test checks that a worker can take over instances that .NET started. It cuts
// recordings of DurableTask.AzureStorage after every write and restores the state at that point on
// a simulated account or in Azurite. A worker then takes over. Each orchestration must end with the
// history and the output of the recording.
package handover_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/google/go-cmp/cmp"
)

// scenario is a part of a recording that a worker can take over.
type scenario struct {
	name      string
	file      string
	scenarios []string
	// instances are the IDs that clients chose. Other IDs are derived from them.
	instances []string
	// from is the number of changes before the first cut.
	from int
	// result is the content of blobs with history values, because the recordings do not contain
	// blobs.
	result string
	// stale means that results for earlier generations stay in the queue for a minute. Only tests
	// in virtual time wait for that.
	stale bool
	// inOrder means that the scenario needs ordered queues. A suspension that is redelivered after
	// the resumption takes effect again.
	inOrder bool
}

var scenarios = []scenario{
	{name: "hello", file: "hello", scenarios: []string{"noext-begin"}, instances: []string{"seq1"}},
	{name: "helloExtended", file: "hello", scenarios: []string{"ext-begin"}, instances: []string{"seq1"}},
	{name: "one", file: "kinds", scenarios: []string{"one"}, instances: []string{"one"}},
	{name: "fails", file: "kinds", scenarios: []string{"fails"}, instances: []string{"fails"}},
	{name: "failsSerialized", file: "kinds", scenarios: []string{"fails-run2"}, instances: []string{"fails"}},
	{name: "retry", file: "kinds", scenarios: []string{"retry"}, instances: []string{"retry"}},
	{name: "retrySerialized", file: "kinds", scenarios: []string{"retry-run2"}, instances: []string{"retry"}},
	{name: "parent", file: "kinds", scenarios: []string{"parent"}, instances: []string{"par"}},
	{name: "parentfail", file: "kinds", scenarios: []string{"parentfail"}, instances: []string{"parf"}},
	{name: "parentfailSerialized", file: "kinds", scenarios: []string{"parentfail-run2"}, instances: []string{"parf"}},
	{name: "timer", file: "kinds", scenarios: []string{"timer"}, instances: []string{"tim"}},
	{name: "loop", file: "kinds", scenarios: []string{"loop"}, instances: []string{"loop"}, stale: true},
	{name: "loopfast", file: "kinds", scenarios: []string{"loopfast"}, instances: []string{"loopfast"}},
	{name: "events", file: "kinds", scenarios: []string{"events", "suspend"}, instances: []string{"ev1", "snd"}, inOrder: true},
	{name: "terminate", file: "kinds", scenarios: []string{"terminate"}, instances: []string{"ev2"}},
	{
		name: "bigout", file: "kinds", scenarios: []string{"bigout"}, instances: []string{"bigout"},
		result: `"` + strings.Repeat("z", 40_000) + `"`,
	},
	{name: "tags", file: "kinds", scenarios: []string{"tags"}, instances: []string{"tagged"}},
	// The first scenario and the client's changes of the rewind are not cut.
	{name: "rewind", file: "kinds", scenarios: []string{"parentfail", "rewind"}, instances: []string{"parf"}, from: 24},
}

func TestWorker_TakesOverDotNetInstances(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]float64{"without faults": 0, "with faults": 0.05} {
		for _, s := range scenarios {
			if s.inOrder && faults > 0 {
				continue
			}
			t.Run(name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { s.takeOver(t, simulated(t, 1, faults)) })
			})
		}
	}
}

func TestWorker_TakesOverInAzurite(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if s.name != "parent" {
				testshare.SkipInShortRuns(t)
			}
			s.takeOver(t, inAzurite(t))
		})
	}
}

// stride returns the number of writes between two cuts of a recording.
func stride() int { return testshare.Amount(1, 8) }

// takeover is one copy of a scenario that was cut.
type takeover struct {
	name      string
	copier    *copier
	instances []string // all instances at the end
	want      map[string][]step
	todo      []pending // remaining changes of clients
}

// pending is a change that a client makes when the histories have a number of rows.
type pending struct {
	change *change
	rows   int
}

func (s scenario) takeOver(t *testing.T, in store) {
	changes := recordedChanges(t, s.file, s.scenarios...)
	h := newHub(t, in)
	var all []*takeover
	for cut := max(s.from, 1); cut <= len(changes); cut += stride() {
		all = append(all,
			s.restore(t, h, changes, cut, len(all), false),
			s.restore(t, h, changes, cut, len(all)+1, true))
	}
	h.writeExpiredLease(t)
	client := s.work(t, h)
	deadline := time.Now().Add(h.patience)
	for open := all; len(open) > 0; time.Sleep(h.pause) { // real time: on Azurite, until h.patience ends
		open = slices.DeleteFunc(slices.Clone(open), func(o *takeover) bool { return o.advance(t, h) && o.ended(t, client) })
		if time.Now().After(deadline) {
			for _, o := range open {
				o.report(t, h, client)
			}
			t.FailNow()
		}
	}
	for _, o := range all {
		o.check(t, h, client)
		o.checkOutput(t, client, s.result)
	}
	for (h.worker != nil || !s.stale) && h.messages(t) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are left in the queues", h.messages(t))
		}
		time.Sleep(h.pause) // real time: on Azurite, until h.patience ends
	}
	t.Logf("%d takeovers", len(all))
}

// restore writes the state after the first cut changes of a recording to storage. If undeleted is
// true, it includes messages that were processed already: a worker deletes them a little later, and
// may die before that.
func (s scenario) restore(t *testing.T, h *hub, changes []*change, cut, number int, undeleted bool) *takeover {
	t.Helper()
	mode := "d"
	if undeleted {
		mode = "u"
	}
	now := changes[cut-1].at
	o := &takeover{
		name:   fmt.Sprintf("after %d writes, undeleted messages: %v", cut, undeleted),
		copier: newCopier(h, s.instances, fmt.Sprintf("-%s%02d", mode, cut), number, time.Since(now).Truncate(100)),
		want:   make(map[string][]step),
	}
	stored := make(map[string]map[string]string) // history rows by instance and key
	for i, c := range changes {
		if i >= cut && c.client {
			o.todo = append(o.todo, pending{c, countSteps(t, stored)})
		}
		for _, r := range c.rows {
			r.entity = o.copier.text(r.entity)
			if i < cut {
				h.write(t, r)
				h.writeBlob(t, r, s.result)
			}
			if r.table == "History" {
				id := o.copier.id(r.key.PartitionKey)
				if stored[id] == nil {
					stored[id] = make(map[string]string)
				}
				stored[id][r.key.RowKey] = r.entity
			}
		}
		if m := c.message; m != nil && i < cut && (undeleted || m.goneAt >= cut) {
			h.put(t, m.queue, o.copier.text(m.text), max(m.hidden-now.Sub(c.at), 0))
		}
	}
	for id, rows := range stored {
		o.instances = append(o.instances, id)
		o.want[id] = steps(t, values(rows))
	}
	slices.Sort(o.instances)
	return o
}

func values(rows map[string]string) (all []string) {
	for _, r := range rows {
		all = append(all, r)
	}
	return all
}

func countSteps(t *testing.T, stored map[string]map[string]string) (n int) {
	t.Helper()
	for _, rows := range stored {
		n += len(steps(t, values(rows)))
	}
	return n
}

// work runs a worker on the hub until the test ends.
func (s scenario) work(t *testing.T, h *hub) *durable.Client {
	t.Helper()
	connection, err := azurestorage.ParseConnectionString(h.connection)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	storage, err := azurestorage.Open(connection, azurestorage.Config{
		TaskHub: h.name, PartitionCount: 1, MaxQueuePollingInterval: h.polling,
		LeaseInterval: 15 * time.Second, LeaseAcquireInterval: 3 * h.polling, Transport: h.worker, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := durable.NewRegistry(functions...)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- durable.NewWorker(storage, registry, durable.Config{Logger: log}).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return durable.NewClient(storage, registry)
}

// advance makes the changes of clients that are due. It reports whether no more changes remain.
func (o *takeover) advance(t *testing.T, h *hub) bool {
	t.Helper()
	for len(o.todo) > 0 {
		n := 0
		for _, id := range o.instances {
			n += len(steps(t, h.rows(t, id)))
		}
		next := o.todo[0]
		if n < next.rows {
			return false
		}
		for _, r := range next.change.rows {
			r.entity = o.copier.text(r.entity)
			h.write(t, r)
		}
		if m := next.change.message; m != nil {
			h.put(t, m.queue, o.copier.text(m.text), 0)
		}
		o.todo = o.todo[1:]
	}
	return true
}

func (o *takeover) ended(t *testing.T, client *durable.Client) bool {
	t.Helper()
	for _, id := range o.instances {
		state, err := client.Status(t.Context(), durable.InstanceID(id), durable.Fetch{})
		if err != nil || state.CompletedAt.IsZero() || !state.Status.IsTerminal() {
			return false
		}
	}
	return true
}

func (o *takeover) report(t *testing.T, h *hub, client *durable.Client) {
	t.Helper()
	for _, id := range o.instances {
		state, err := client.Status(t.Context(), durable.InstanceID(id), durable.Fetch{Output: true})
		t.Errorf("%s: %s has not completed: %+v, %v", o.name, id, state, err)
		if diff := cmp.Diff(o.want[id], steps(t, h.rows(t, id))); diff != "" {
			t.Errorf("%s: history of %s (-recorded +ours):\n%s", o.name, id, diff)
		}
	}
}

func (o *takeover) check(t *testing.T, h *hub, client *durable.Client) {
	t.Helper()
	for _, id := range o.instances {
		want, got := o.want[id], steps(t, h.rows(t, id))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: history of %s (-recorded +ours):\n%s", o.name, id, diff)
		}
		if state, err := client.Status(t.Context(), durable.InstanceID(id), durable.Fetch{Output: true}); err != nil {
			t.Error(err)
		} else if end := want[len(want)-2]; state.Status.String() != end.Status {
			t.Errorf("%s: %s is %s, want %s", o.name, id, state.Status, end.Status)
		}
	}
}

// checkOutput compares an output that is stored in a blob.
func (o *takeover) checkOutput(t *testing.T, client *durable.Client, want string) {
	t.Helper()
	if want == "" {
		return
	}
	for _, id := range o.instances {
		state, err := client.Status(t.Context(), durable.InstanceID(id), durable.Fetch{Output: true})
		if err != nil || state.Output == nil || *state.Output != want {
			t.Errorf("%s: the output of %s differs from the recording: %v", o.name, id, err)
		}
	}
}
