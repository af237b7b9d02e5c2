package entity_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// exactly is a play on a hub that delivers in order and once.
func exactly(t *testing.T) *play {
	p := newPlay(t)
	p.settings.Exact = true
	return p
}

// On an exact hub an entity knows some 20 senders, however many there were.
func TestExact_StateIsSmall(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	if ran := callers(p, 0, 3000); ran["crowd"] != 3000 {
		t.Errorf("%d of 3,000 requests took effect", ran["crowd"])
	}
	p.run(map[string]int{}) // with the next batch there are too many
	if size := len(p.state.Encode()); size > 5000 {
		t.Errorf("the state has %d bytes after 3,000 callers, want at most 5,000", size)
	}
}

// What a client sends may come again on any hub: it sends again what may have arrived.
func TestExact_ASignalOfAClientTakesEffectOnce(t *testing.T) {
	t.Parallel()
	p, ran := exactly(t), map[string]int{}
	for range 2 {
		p.run(ran, op(entity.Request{ID: "1", Operation: "signal", Signal: true}))
	}
	if ran["signal"] != 1 {
		t.Errorf("a signal that came twice took effect %d times", ran["signal"])
	}
}

// What an entity on an exact hub sends goes out with its state, and not again.
func TestExact_NothingIsSentAgain(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	p.settings.Resend = true
	b := p.begin(op(*fromCrowd(1, 0)))
	for o, ok := b.Next(); ok; o, ok = b.Next() {
		b.Done(recordedCounter(o))
	}
	if sent := b.Finish("execution"); len(sent) != 1 {
		t.Fatalf("a call has %d answers, want 1", len(sent))
	}
	p.state = stored(t, p.state)
	if sent := p.begin().Finish("execution"); len(sent) != 0 {
		t.Errorf("%d messages of the batch before were sent again", len(sent))
	}
}

// A hub that is copied to another one is not exact any more. There, what follows a request
// of a sender that the entity does not know does not wait, and what was on its way waits for
// what was sent before it.
func TestExact_ACopiedEntityGoesOnInOrder(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	callers(p, 0, 3000)
	p.settings.Exact = false
	ran := map[string]int{}
	p.run(ran, op(entity.Request{ID: "1", Operation: "next", Parent: "member 0", ParentExecution: "x", Timestamp: p.now, Predecessor: noon}))
	if ran["next"] != 1 {
		t.Error("the next request of the first sender waits")
	}
	p.log = nil
	first, second := fromCrowd(5000, 0), fromCrowd(5000, time.Second)
	first.Operation, second.Operation = "first", "second"
	second.ID, second.Predecessor = entity.DeriveID("second"), first.Timestamp
	p.get(op(*second))
	p.get(op(*first))
	if len(p.log) < 2 || p.log[0] != "ran first" || p.log[1] != "ran second" {
		t.Errorf("got %v, want that the first runs and then the second", p.log)
	}
}

// A release may come before the request for the lock, which another entity passes on. It is
// remembered then, and only then.
func TestExact_AReleaseVoidsARequestThatComesLater(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	p.get(release("p"))
	p.get(op(lockRequest("p", 0, "a")))
	if by := p.state.LockedBy(); by != "" {
		t.Errorf("locked by %q, although it was released before", by)
	}
	p = exactly(t)
	p.get(op(lockRequest("p", 0, "a")))
	size := len(p.state.Encode())
	p.get(release("p"))
	if by := p.state.LockedBy(); by != "" {
		t.Errorf("locked by %q after its release", by)
	}
	if now := len(p.state.Encode()); now > size {
		t.Errorf("the state has %d bytes after the release of a lock and %d before: it is remembered", now, size)
	}
}
