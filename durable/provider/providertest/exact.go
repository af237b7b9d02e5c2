package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// exact has what an exact provider promises besides; of others it is skipped. That a message
// which was committed does not come again is checked in every test.
var exact = area{"exact", []test{
	{"it keeps the order always", ofExact(exactOrder)},
	{"what a checkpoint sends comes once, and what it took does not, through the death of the worker", ofExact(exactThroughDeath)},
	{"what a checkpoint would have sent that is lost with its worker does not come", ofExact(exactLost)},
	{"what a checkpoint would have sent that is refused does not come", ofExact(exactRefused)},
	{"what was sent to two instances comes once to each, through the death of the worker", ofExact(exactFamily)},
}}

func ofExact(f func(*world)) func(*world) {
	return running(func(w *world) {
		if !w.isExact() {
			w.Skip("the provider does not say that it is exact")
		}
		f(w)
	})
}

func exactOrder(w *world) {
	w.equal("order", w.hub.Order, OrderAlways)
}

func exactThroughDeath(w *world) {
	e, told := w.telling()
	e.commit()
	w.kill()
	got := w.next("@told@a")
	w.equal("messages", got.item.Messages, []provider.TaskMessage{told})
	got.become("first of told", "state").finish()
	w.quiet("both messages were committed")
	w.kill()
	w.quiet("both messages were committed, and the worker died again")
}

func exactLost(w *world) {
	e, _ := w.telling()
	w.kill()
	again := w.next(entityID)
	w.equal("messages", again.item.Messages, e.item.Messages)
	again.become("second", "state").finish()
	w.quiet("the checkpoint that sends something was not committed")
}

func exactRefused(w *world) {
	w.send(signal(entityID, "begin"))
	w.next(entityID).become("first", "state").finish()
	w.send(signal(entityID, "tell"))
	e := w.next(entityID).become("second", "state").tell(signal("@told@a", "told"))
	w.must("Purge", w.purge(entityID))
	w.refused(e)
	w.idle(func(e *episode) { w.equal("instance that was handed out", e.item.Instance.InstanceID, entityID) })
}

// exactFamily has an orchestration send to itself, to a child and to an entity at once.
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
			w.Fatalf("only %v came", got)
		}
		id := e.item.Instance.InstanceID
		got[id] += len(e.fresh)
		switch {
		case history.IsEntity(id):
			e.become("first", "state").finish()
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
