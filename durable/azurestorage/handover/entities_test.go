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

// SigOther signals another entity and starts an orchestration. Their IDs have the same suffix as
// the entity's key.
func (c *Counter) SigOther(ctx *durable.EntityContext, _ durable.Void) (durable.Void, error) {
	suffix := suffixOf(ctx.ID().Key)
	durable.SignalFrom(ctx, durable.EntityKey[Counter]("other"+suffix), (*Counter).Add, 1)
	_, err := durable.StartFrom(ctx, Child, "e", durable.InstanceID("fromentity"+suffix))
	return durable.Void{}, err
}

var counters = durable.Entity("counter", durable.Op("add", (*Counter).Add), durable.Op("get", (*Counter).Get),
	durable.Op("fail", (*Counter).Fail), durable.Op("sigother", (*Counter).SigOther))

// Ent signals and calls an entity, locks two entities, calls a failing operation, and releases the
// locks.
func Ent(ctx *durable.Context, _ string) (string, error) {
	suffix := suffixOf(string(ctx.InstanceID()))
	k1, k2 := durable.EntityKey[Counter]("k1"+suffix), durable.EntityKey[Counter]("k2"+suffix)
	durable.SignalFrom(ctx, k1, (*Counter).Add, 5)
	n, err := durable.CallEntity(ctx, k1, (*Counter).Get, durable.Void{}).Await()
	if err != nil {
		return "", err
	}
	unlock := durable.LockEntities(ctx, k2, k1)
	_, err = durable.CallEntity(ctx, k1, (*Counter).Fail, durable.Void{}).Await()
	unlock()
	if failed, ok := errors.AsType[*durable.TaskFailedError](err); !ok {
		return "", fmt.Errorf("the failing operation returned %w", err)
	} else if !strings.Contains(failed.Error(), "op failed") {
		return "", failed
	}
	return fmt.Sprintf(`{"result":"%d"}`, n), nil
}

// suffixOf returns the suffix that a takeover adds to its IDs.
func suffixOf(id string) string {
	if i := strings.LastIndexByte(id, '-'); i >= 0 {
		return id[i:]
	}
	return ""
}

// The recordings of entities are cut after every write. The worker takes over the orchestration and
// the entities with the messages and state that .NET had stored. Each operation must count once,
// and no lock must remain.
func TestWorker_TakesOverDotNetEntities(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]float64{"without faults": 0, "with faults": 0.05} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { takeOverEntities(t, simulated(t, 1, faults)) })
		})
	}
	t.Run("in Azurite", func(t *testing.T) {
		t.Parallel()
		testshare.SkipInShortRuns(t)
		takeOverEntities(t, inAzurite(t))
	})
}

func takeOverEntities(t *testing.T, in store) {
	s := scenario{
		name: "entities", file: "ent", scenarios: []string{"orch", "signal", "sched"},
		instances: []string{"entorch", "fromentity", "@counter@k1", "@counter@k2", "@counter@other", "k1", "k2"},
	}
	changes := recordedChanges(t, s.file, s.scenarios...)
	h := newHub(t, in)
	var all []*entityTakeover
	for cut := 2; cut <= len(changes); cut += stride() {
		undeleted := len(all)%2 == 0 // only one mode per cut, because there are many
		if !recoverable(changes, cut, undeleted) {
			continue
		}
		o := &entityTakeover{suffix: fmt.Sprintf("-%s%02d", map[bool]string{false: "d", true: "u"}[undeleted], cut)}
		s.restore(t, h, changes, cut, len(all), undeleted)
		for _, c := range changes[:cut] {
			if m := c.message; m != nil {
				o.signaled = o.signaled || strings.Contains(m.text, "sigother")
				o.scheduled = o.scheduled || strings.Contains(m.text, "op@")
			}
		}
		all = append(all, o)
	}
	h.writeExpiredLease(t)
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
			t.Errorf("%s, at the end: %s", o.suffix, d)
		}
	}
	t.Logf("%d takeovers", len(all))
}

// parent matches the sender of a request.
var parent = regexp.MustCompile(`\\"parent\\":\\"([^\\]+)`)

// recoverable reports whether the state after the first cut changes shows which operations took
// effect. In two cases .NET stores no evidence. A sender may have sent a signal without storing
// that. An entity may have processed a client's signal that is still in the queue. Every worker,
// also .NET's, then repeats the operation.
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

// entityTakeover is a copy of the entities' recording that was cut.
type entityTakeover struct {
	suffix              string
	signaled, scheduled bool // sent by clients before the cut
}

// difference returns a difference from the expected final state, or "".
func (o *entityTakeover) difference(t *testing.T, client *durable.Client) string {
	t.Helper()
	for id, output := range map[string]string{"entorch": `"{\"result\":\"5\"}"`, "fromentity": `"child:e"`} {
		if id == "fromentity" && !o.signaled {
			continue
		}
		s, err := client.Status(t.Context(), durable.InstanceID(id+o.suffix), durable.Fetch{Output: true})
		switch {
		case err != nil:
			return fmt.Sprintf("%s: %v", id, err)
		case s.Status != history.Completed || s.Output == nil || *s.Output != output:
			return fmt.Sprintf("%s has status %v and output %s", id, s.Status, valueOf(s.Output))
		}
	}
	want := map[string]string{"k1": `"state":"5"`, "k2": `{"sorter":`}
	if o.scheduled {
		want["k1"] = `"state":"12"`
	}
	if o.signaled {
		want["other"] = `"state":"1"`
	}
	for key, state := range want {
		e, err := client.Status(t.Context(), durable.InstanceID("@counter@"+key+o.suffix), durable.Fetch{Input: true})
		if err != nil {
			return fmt.Sprintf("%s: %v", key, err)
		}
		status := valueOf(e.CustomStatus)
		if !strings.Contains(valueOf(e.Input), state) || strings.Contains(status, "lockedBy") || strings.Contains(status, "queueSize") {
			return fmt.Sprintf("%s has status %s and state %s; want %s in the state and no lock", key, status, valueOf(e.Input), state)
		}
	}
	return ""
}

func valueOf(s *string) string {
	if s == nil {
		return "no output"
	}
	return *s
}
