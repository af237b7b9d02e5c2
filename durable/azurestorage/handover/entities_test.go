package handover_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// Counter is the entity of the recordings.
type Counter int

func (c *Counter) Add(_ *durable.EntityContext, n int) (int, error) {
	*c += Counter(n)
	return int(*c), nil
}

func (c *Counter) Get(*durable.EntityContext, durable.Void) (int, error) { return int(*c), nil }

func (c *Counter) Fail(*durable.EntityContext, durable.Void) (int, error) {
	*c = -1
	return 0, errors.New("op failed")
}

// SigOther signals another entity and starts an orchestration, whose names end as
// the entity's own key does.
func (c *Counter) SigOther(ctx *durable.EntityContext, _ durable.Void) (durable.Void, error) {
	suffix := suffixOf(ctx.ID().Key)
	durable.SignalEntity(ctx, durable.EntityKey[Counter]("other"+suffix), (*Counter).Add, 1)
	_, err := durable.StartOrchestration(ctx, Child, "e", durable.InstanceID("fromentity"+suffix))
	return durable.Void{}, err
}

var counters = durable.Entity("counter", durable.Op("add", (*Counter).Add), durable.Op("get", (*Counter).Get),
	durable.Op("fail", (*Counter).Fail), durable.Op("sigother", (*Counter).SigOther))

// Ent signals, calls, locks, calls what fails, and releases.
func Ent(ctx *durable.Context, _ string) (string, error) {
	suffix := suffixOf(string(ctx.InstanceID()))
	k1, k2 := durable.EntityKey[Counter]("k1"+suffix), durable.EntityKey[Counter]("k2"+suffix)
	durable.SignalEntity(ctx, k1, (*Counter).Add, 5)
	n, err := durable.CallEntity(ctx, k1, (*Counter).Get, durable.Void{}).Await()
	if err != nil {
		return "", err
	}
	unlock := durable.LockEntities(ctx, k2, k1)
	_, err = durable.CallEntity(ctx, k1, (*Counter).Fail, durable.Void{}).Await()
	unlock()
	if failed, ok := errors.AsType[*durable.TaskFailedError](err); !ok {
		return "", fmt.Errorf("the operation that fails came to %w", err)
	} else if !strings.Contains(failed.Error(), "op failed") {
		return "", failed
	}
	return fmt.Sprintf(`{"result":"%d"}`, n), nil
}

// suffixOf returns what a takeover has its IDs end with.
func suffixOf(id string) string {
	if i := strings.LastIndexByte(id, '-'); i >= 0 {
		return id[i:]
	}
	return ""
}

// The recordings of entities, cut off after every write: what .NET's
// orchestration and entities had sent and stored is carried on, so that each
// operation counts once and no lock stays.
func TestWorker_CarriesOnDotNetsEntities(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]float64{"without faults": 0, "with faults": 0.05} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { carryOnEntities(t, simulated(t, 1, faults)) })
		})
	}
	t.Run("in Azurite", func(t *testing.T) {
		t.Parallel()
		testshare.LeaveToFull(t)
		carryOnEntities(t, inAzurite(t))
	})
}

func carryOnEntities(t *testing.T, in store) {
	s := scenario{
		name: "entities", file: "ent", scenarios: []string{"orch", "signal", "sched"},
		instances: []string{"entorch", "fromentity", "@counter@k1", "@counter@k2", "@counter@other", "k1", "k2"},
	}
	changes := recordedChanges(t, s.file, s.scenarios...)
	h := newHub(t, in)
	var all []*entityTakeover
	for cut := 2; cut <= len(changes); cut += stride() {
		undeleted := len(all)%2 == 0 // one way for each: there are many
		if !recoverable(changes, cut, undeleted) {
			continue
		}
		o := &entityTakeover{suffix: fmt.Sprintf("-%s%02d", map[bool]string{false: "d", true: "u"}[undeleted], cut)}
		s.restore(t, h, changes, cut, len(all), undeleted)
		for _, c := range changes[:cut] {
			if m := c.message; m != nil {
				o.signalled = o.signalled || strings.Contains(m.text, "sigother")
				o.scheduled = o.scheduled || strings.Contains(m.text, "op@")
			}
		}
		all = append(all, o)
	}
	h.leave(t)
	client := s.work(t, h)
	deadline := time.Now().Add(2 * h.patience)
	for open := all; len(open) > 0; time.Sleep(2 * h.pause) { // real time: on Azurite, until h.patience ends
		open = slices.DeleteFunc(slices.Clone(open), func(o *entityTakeover) bool { return o.difference(t, client) == "" })
		if time.Now().After(deadline) {
			for _, o := range open {
				t.Errorf("%s: %s", o.suffix, o.difference(t, client))
			}
			t.FailNow()
		}
	}
	for deadline := time.Now().Add(h.patience); h.messages(t) > 0 && time.Now().Before(deadline); {
		time.Sleep(h.pause) // real time: on Azurite, until h.patience ends
	}
	for _, o := range all {
		if d := o.difference(t, client); d != "" {
			t.Errorf("%s, in the end: %s", o.suffix, d)
		}
	}
	t.Logf("%d takeovers", len(all))
}

// parent finds who sent a request.
var parent = regexp.MustCompile(`\\"parent\\":\\"([^\\]+)`)

// recoverable reports whether there is a way to tell, after the first changes of
// the recording, what took effect already. .NET leaves none in two cases: when
// somebody has sent a signal and has yet to store that, and when an entity has
// taken a client's signal that is still on its queue. Then nobody can but let it
// take effect twice, .NET included.
func recoverable(changes []*change, cut int, undeleted bool) bool {
	for i, c := range changes[:cut] {
		m := c.message
		if m == nil || m.instance[0] != '@' || !strings.Contains(m.text, `\"signal\":true`) {
			continue
		}
		sender := parent.FindStringSubmatch(m.text)
		taken, stored := false, false
		for _, later := range changes[i+1 : cut] {
			for _, r := range later.rows {
				taken = taken || r.table == "History" && r.key.PartitionKey == m.instance
				stored = stored || sender != nil && r.table == "History" && r.key.PartitionKey == sender[1]
			}
		}
		if sender == nil && taken && (undeleted || m.goneAt >= cut) || sender != nil && !stored {
			return false
		}
	}
	return true
}

// An entityTakeover is a copy of the entities' recording, cut off.
type entityTakeover struct {
	suffix               string
	signalled, scheduled bool // what the clients had sent before the cut
}

// difference says what is not yet as it must be in the end.
func (o *entityTakeover) difference(t *testing.T, client *durable.Client) string {
	t.Helper()
	for id, output := range map[string]string{"entorch": `"{\"result\":\"5\"}"`, "fromentity": `"child:e"`} {
		if id == "fromentity" && !o.signalled {
			continue
		}
		s, err := client.Status(t.Context(), durable.InstanceID(id+o.suffix), durable.Fetch{Output: true})
		switch {
		case err != nil:
			return fmt.Sprintf("%s: %v", id, err)
		case s.Status != history.Completed || s.Output == nil || *s.Output != output:
			return fmt.Sprintf("%s is %v: %s", id, s.Status, shown(s.Output))
		}
	}
	want := map[string]string{"k1": `"state":"5"`, "k2": `{"sorter":`}
	if o.scheduled {
		want["k1"] = `"state":"12"`
	}
	if o.signalled {
		want["other"] = `"state":"1"`
	}
	for key, state := range want {
		e, err := client.Status(t.Context(), durable.InstanceID("@counter@"+key+o.suffix), durable.Fetch{Input: true})
		if err != nil {
			return fmt.Sprintf("%s: %v", key, err)
		}
		status := shown(e.CustomStatus)
		if !strings.Contains(shown(e.Input), state) || strings.Contains(status, "lockedBy") || strings.Contains(status, "queueSize") {
			return fmt.Sprintf("%s has %s and is %s, want %s in it and no lock", key, status, shown(e.Input), state)
		}
	}
	return ""
}

func shown(s *string) string {
	if s == nil {
		return "no output"
	}
	return *s
}
