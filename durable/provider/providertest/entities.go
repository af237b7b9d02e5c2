package providertest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var entities = area{"entities", []test{
	{"the first message creates an entity", running(entityBegins)},
	{"an entity key can contain any character of an instance ID", running(entityKeys)},
	{"an entity continues from checkpoint to checkpoint", running(entityLives)},
	{"the caller of an entity receives the result", running(entityAnswers)},
	{"an entity starts an orchestration", running(entityStarts)},
	{"an entity can have a state of any size", running(entityLarge)},
	{"a large state can be read while it changes", running(entityReadWhileItChanges)},
	{"a delayed signal is not delivered early", running(entityDelayed)},
	{"delayed signals are kept through the entity's checkpoints", running(entityDelayedThroughout)},
	{"an entity's session receives more messages", running(entitySession)},
	{"queries find entities by ID prefix and can exclude them", running(entityQueries)},
	{"a purged entity can be created again", running(entityPurged)},
	{"an entity is kept when the hub is reopened", running(entityReopened)},
}}

const entityID = "@counter@A key/with:odd characters"

// signal returns a message for an entity.
func signal(id, op string) provider.TaskMessage { return raised(id, "op", text(`{"op":"`+op+`"}`)) }

func entityBegins(w *world) {
	first := signal(entityID, "add")
	w.send(first)
	e := w.next(entityID)
	w.equal("instance", e.item.Instance.InstanceID, entityID)
	w.equal("history", e.item.History, []history.Event(nil))
	w.equal("messages", e.item.Messages, []provider.TaskMessage{first})
	e.setEntityState("first", "state 1").finish()
	w.quiet("its message was committed")

	s := w.state(entityID)
	w.equal("instance", s.Instance, history.OrchestrationInstance{InstanceID: entityID, ExecutionID: "first"})
	w.equal("name", s.Name, entityID)
	w.equal("version", s.Version, "")
	w.equal("status", s.Status, history.Running)
	w.equal("input", s.Input, text("state 1"))
	w.equal("custom status", s.CustomStatus, text(`{"entityExists":true}`))
	w.equal("history", w.history(entityID), w.histories[s.Instance])
}

func entityKeys(w *world) {
	ids := []string{"@counter@", "@counter@@", "@counter@a@b", "@counter@a", "@counter@A", "@counter@it's", "@counter@ü 世界 😀", "@counter@a:b$c^d"}
	for i, id := range ids {
		w.send(signal(id, "add"))
		w.next(id).setEntityState(fmt.Sprint("execution ", i), "state of "+id).finish()
	}
	found := make(map[string]bool)
	for _, s := range w.list(provider.Query{IDPrefix: "@counter@", Fetch: provider.Fetch{Input: true}}) {
		found[s.Instance.InstanceID] = true
		w.equal("state", s.Input, text("state of "+s.Instance.InstanceID))
	}
	for _, id := range ids {
		w.equal("state", w.state(id).Input, text("state of "+id))
		if !found[id] {
			w.Errorf("%q is not listed", id)
		}
	}
	w.equal("number of entities", len(found), len(ids))
}

func entityLives(w *world) {
	names := []string{"one", "two", "three", "four"}
	var before *provider.InstanceState
	for i, name := range names {
		w.send(signal(entityID, name))
		e := w.next(entityID)
		if i > 0 {
			w.equal("execution of the work item", e.item.Instance.ExecutionID, names[i-1])
		}
		e.setEntityState(name, "state of "+name).finish()
		s := w.state(entityID)
		w.equal("input", s.Input, text("state of "+name))
		if before != nil && s.CreatedAt.Before(before.CreatedAt) {
			w.Errorf("CreatedAt is %v, before the previous checkpoint's %v; want the time of the last checkpoint", s.CreatedAt, before.CreatedAt)
		}
		before = s
	}
}

func entityAnswers(w *world) {
	caller := w.create("caller")
	w.next("caller").raise(0, entityID, "op", text(`{"op":"get"}`)).finish()
	answer := raised("caller", "11111111-1111-1111-1111-111111111111", text(`{"result":"1"}`))
	answer.Target = caller
	w.next(entityID).setEntityState("first", "state").addMessage(answer).finish()
	e := w.next("caller")
	w.equal("messages", e.item.Messages, []provider.TaskMessage{answer})
	e.finish()
}

func entityStarts(w *world) {
	w.send(signal(entityID, "start"))
	e := w.next(entityID).setEntityState("first", "state")
	child := started("child", "execution of child", text("1"))
	child.Tags = map[string]string{"FireAndForget": ""}
	child.Parent = &history.ParentInstance{Name: entityID, Instance: e.cp.Instance, TaskScheduleID: 3}
	m := provider.TaskMessage{Event: child, Target: child.Instance}
	e.addMessage(m).finish()
	got := w.next("child")
	w.equal("messages", got.item.Messages, []provider.TaskMessage{m})
	got.end(history.Completed, nil).finish()
	w.quiet("everything was committed")
}

func entityLarge(w *world) {
	for _, name := range []string{"first", "second", "third"} {
		w.send(signal(entityID, name))
		w.next(entityID).setEntityState(name, *large(name)).finish()
		w.equal("input", w.state(entityID).Input, large(name))
	}
	w.send(signal(entityID, "shrink"))
	w.next(entityID).setEntityState("fourth", "small").finish()
	w.equal("input", w.state(entityID).Input, text("small"))
}

// entityReadWhileItChanges reads the state, the list and the history of an entity while it continues
// as new. Each result must belong to one generation.
func entityReadWhileItChanges(w *world) {
	stateOf := func(execution string) *string {
		return text(execution + strings.Repeat(" state", 12_000)) // too long for a row of a table
	}
	commit := func(execution string) {
		w.send(signal(entityID, execution))
		w.next(entityID).setEntityState(execution, *stateOf(execution)).finish()
	}
	commit("first")
	ctx, cancel := w.patient()
	defer cancel()
	isState := func(what string, s *provider.InstanceState) {
		if s.Input == nil || *s.Input != *stateOf(s.Instance.ExecutionID) {
			w.Errorf("%s has another state than that of execution %q", what, s.Instance.ExecutionID)
		}
	}
	reads := map[string]func() error{
		"Instance": func() error {
			s, err := w.p.Instance(ctx, entityID, provider.Fetch{Input: true})
			if err == nil {
				isState("Instance", s)
			}
			return err
		},
		"Instances": func() error {
			page, err := w.p.Instances(ctx, provider.Query{Fetch: provider.Fetch{Input: true}})
			if err != nil {
				return err
			}
			for _, s := range page.Instances {
				isState("Instances", s)
			}
			if len(page.Unreadable) > 0 {
				return page.Unreadable[0].Cause
			}
			return nil
		},
		"History": func() error {
			past, err := w.p.History(ctx, entityID)
			if start := history.StartOf(past); err == nil && (start == nil || *start.Input != *stateOf(start.Instance.ExecutionID)) {
				err = fmt.Errorf("%d events, want those of one generation", len(past))
			}
			return err
		},
	}
	var changed atomic.Bool
	var readers sync.WaitGroup
	defer readers.Wait()
	defer changed.Store(true)
	for name, read := range reads {
		readers.Go(func() {
			for ; !changed.Load(); time.Sleep(time.Millisecond) { // in a bubble, reads from memory take no time
				if err := read(); err != nil {
					w.Errorf("%s during a change: %v", name, err)
					return
				}
			}
		})
	}
	for i := range 10 {
		commit(fmt.Sprint("execution ", i))
	}
}

// later returns a signal to an entity that is due at the given time.
func later(id string, due time.Time) provider.TaskMessage {
	return raised(id, "op@"+due.UTC().Format("2006-01-02T15:04:05.0000000Z"), text(`{"op":"later"}`))
}

func entityDelayed(w *world) {
	due := now().Add(moment)
	m := later(entityID, due)
	w.send(m)
	w.send(signal(entityID, "at once"))
	w.commitUntil(entityID, m, due)
}

func entityDelayedThroughout(w *world) {
	w.send(signal(entityID, "remember"))
	e := w.next(entityID).setEntityState("first", "state")
	due := now().Add(moment)
	m := later(entityID, due)
	e.addMessage(m).finish()
	w.send(signal(entityID, "go on"))
	w.commitUntil(entityID, m, due)
}

func entitySession(w *world) {
	w.send(signal(entityID, "first"))
	e := w.next(entityID).setEntityState("first", "state 1").commit()
	second := signal(entityID, "second")
	w.send(second)
	if got := e.more(w.hub.Patience); len(got) == 0 {
		e.release() // the provider has no extended sessions, or ended this one
		e = w.next(entityID)
	} else {
		w.equal("messages", got, []provider.TaskMessage{second})
	}
	e.setEntityState("second", "state 2").finish()
	w.equal("input", w.state(entityID).Input, text("state 2"))
	w.quiet("everything was committed")
}

func entityQueries(w *world) {
	for _, id := range []string{"@a@1", "@a@2", "@ab@1"} {
		w.send(signal(id, "add"))
		w.next(id).setEntityState("execution of "+id, "state").finish()
	}
	w.begin("a")
	w.equal("all", w.listIDs(emptyQuery), []string{"@a@1", "@a@2", "@ab@1", "a"})
	w.equal("entities", w.listIDs(provider.Query{IDPrefix: "@"}), []string{"@a@1", "@a@2", "@ab@1"})
	w.equal("entities of a name", w.listIDs(provider.Query{IDPrefix: "@a@"}), []string{"@a@1", "@a@2"})
	w.equal("no entities", w.listIDs(provider.Query{ExcludeEntities: true}), []string{"a"})
	w.equal("entities written long ago", w.listIDs(provider.Query{IDPrefix: "@", CreatedTo: time.Now().Add(-time.Hour)}), []string(nil))
}

func entityPurged(w *world) {
	w.send(signal(entityID, "add"))
	w.next(entityID).setEntityState("first", *large("state")).finish()
	w.must("Purge", w.purge(entityID))
	ctx, cancel := w.patient()
	defer cancel()
	if s, err := w.p.Instance(ctx, entityID, provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		w.Errorf("Instance returned %+v, %v, want %v", s, err, provider.ErrInstanceNotFound)
	}
	w.send(signal(entityID, "again"))
	e := w.next(entityID)
	w.equal("history", e.item.History, []history.Event(nil))
	e.setEntityState("second", "state 2").finish()
	w.equal("input", w.state(entityID).Input, text("state 2"))
}

func entityReopened(w *world) {
	w.send(signal(entityID, "add"))
	w.next(entityID).setEntityState("first", "state").finish()
	w.send(later(entityID, now().Add(moment)))
	w.reopen()
	w.equal("input", w.state(entityID).Input, text("state"))
	e := w.next(entityID)
	w.equal("execution", e.item.Instance.ExecutionID, "first")
	e.setEntityState("second", "state 2").finish()
}
