package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Tests of [provider.ExactlyOnce]. They are skipped if IsExactlyOnce returns false. All other
// tests also check that committed messages are not redelivered by an exact provider.
var exact = area{"exact", []test{
	{"messages are always in order", ofExact(exactOrder)},
	{"after a crash, a checkpoint's messages are delivered once and consumed messages are not redelivered", ofExact(exactThroughDeath)},
	{"the messages of a checkpoint lost in a crash are not delivered", ofExact(exactLost)},
	{"the messages of a refused checkpoint are not delivered", ofExact(exactRefused)},
	{"after a crash, messages to several instances are delivered once to each", ofExact(exactFamily)},
	{"an event after the start of a child that replaces an instance is delivered to the child", ofExact(exactReplacement)},
}}

func ofExact(f func(*world)) func(*world) {
	return running(func(w *world) {
		if !w.isExact() {
			w.Skip("the provider is not exact")
		}
		f(w)
	})
}

func exactOrder(w *world) {
	w.equal("order", w.hub.Order, OrderAlways)
}

func exactThroughDeath(w *world) {
	e, told := w.sendingEntity()
	e.commit()
	w.kill()
	got := w.next("@told@a")
	w.equal("messages", got.item.Messages, []provider.TaskMessage{told})
	got.setEntityState("first of told", "state").finish()
	w.quiet("both messages were committed")
	w.kill()
	w.quiet("both messages were committed, and the worker crashed again")
}

func exactLost(w *world) {
	e, _ := w.sendingEntity()
	w.kill()
	again := w.next(entityID)
	w.equal("messages", again.item.Messages, e.item.Messages)
	again.setEntityState("second", "state").finish()
	w.quiet("the checkpoint with the message was not committed")
}

func exactRefused(w *world) {
	w.send(signal(entityID, "begin"))
	w.next(entityID).setEntityState("first", "state").finish()
	w.send(signal(entityID, "tell"))
	e := w.next(entityID).setEntityState("second", "state").addMessage(signal("@told@a", "told"))
	w.must("Purge", w.purge(entityID))
	w.refused(e)
	w.discardUntilQuiet(func(e *episode) { w.equal("instance that was dispatched", e.item.Instance.InstanceID, entityID) })
}

// exactFamily lets an orchestration send messages to itself, to a child and to an entity in one
// checkpoint.
func exactFamily(w *world) {
	parent := w.create("a")
	child := childStart("child", "execution of child", parent, 0)
	w.next("a").child(0, child).raise(1, entityID, "op", text(`{"op":"add"}`)).raise(2, "a", "Event", nil).commit()
	w.kill()
	got := make(map[string]int)
	for range 3 {
		ctx, cancel := w.patient()
		e := w.try(ctx)
		cancel()
		if e == nil {
			w.Fatalf("only %v were delivered", got)
		}
		id := e.item.Instance.InstanceID
		got[id] += len(e.fresh)
		switch {
		case history.IsEntity(id):
			e.setEntityState("first", "state").finish()
		case id == "child":
			e.end(history.Completed, nil).finish()
		default:
			e.finish()
		}
	}
	w.equal("messages by instance", got, map[string]int{"a": 1, "child": 1, entityID: 1})
	w.kill()
	w.quiet("all messages were committed")
}

// exactReplacement sends the start of a child and an event to an instance, which ends before it receives
// them. Without order, the instance may discard the event.
func exactReplacement(w *world) {
	w.create("child")
	ending := w.next("child")
	parent := w.create("parent")
	start := childStart("child", "another execution", parent, 0)
	e := w.next("parent").child(0, start).raise(1, "child", "Event", nil)
	sent := e.cp.Messages
	e.finish()
	ending.end(history.Completed, nil).finish()
	w.next("child")
	w.kill() // after the child has replaced the instance
	e = w.next("child")
	w.equal("instance of the work item", e.item.Instance, start.Target)
	e.arrive(len(sent))
	w.equal("messages", e.fresh, sent)
	e.end(history.Completed, nil).finish()
	w.quiet("both messages were committed")
}
