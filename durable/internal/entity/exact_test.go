package entity_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// exactly returns a play on a hub that delivers in order and exactly once.
func exactly(t *testing.T) *play {
	p := newPlay(t)
	p.settings.ExactlyOnce = true
	return p
}

// On an exact hub an entity has entries for about 20 senders, even after thousands of callers.
func TestExact_StateIsSmall(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	if ran := callers(p, 0, 3000); ran["crowd"] != 3000 {
		t.Errorf("%d of 3,000 requests took effect", ran["crowd"])
	}
	p.run(map[string]int{}) // this batch finds too many senders
	if size := len(p.state.Encode()); size > 5000 {
		t.Errorf("the state has %d bytes after 3,000 callers, want at most 5,000", size)
	}
}

// A client repeats a signal that may have arrived, so its duplicates occur on any hub.
func TestExact_ASignalOfAClientTakesEffectOnce(t *testing.T) {
	t.Parallel()
	p, ran := exactly(t), map[string]int{}
	for range 2 {
		p.run(ran, op(entity.Request{ID: "1", Operation: "signal", Signal: true}))
	}
	if ran["signal"] != 1 {
		t.Errorf("a signal that arrived twice took effect %d times", ran["signal"])
	}
}

// On an exact hub the messages of a batch are sent once, with its state.
func TestExact_TheOutboxIsNotSentAgain(t *testing.T) {
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
		t.Errorf("%d messages of the previous batch were sent again", len(sent))
	}
}

// A hub that was copied to another hub is not exact any longer. The next request of an unknown
// sender then does not wait, and requests in flight wait for their predecessors.
func TestExact_ACopiedEntityContinuesInOrder(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	callers(p, 0, 3000)
	p.settings.ExactlyOnce = false
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
		t.Errorf("got %v, want the first request to run before the second", p.log)
	}
}

// A release may arrive before the lock request that another entity passes on. Only then does
// the memory hold it.
func TestExact_AReleaseVoidsALaterLockRequest(t *testing.T) {
	t.Parallel()
	p := exactly(t)
	p.get(release("p"))
	p.get(op(lockRequest("p", 0, "a")))
	if by := p.state.LockedBy(); by != "" {
		t.Errorf("locked by %q although the release arrived first", by)
	}
	p = exactly(t)
	p.get(op(lockRequest("p", 0, "a")))
	size := len(p.state.Encode())
	p.get(release("p"))
	if by := p.state.LockedBy(); by != "" {
		t.Errorf("locked by %q after its release", by)
	}
	if now := len(p.state.Encode()); now > size {
		t.Errorf("the state has %d bytes after the release of a lock and %d before, want no growth", now, size)
	}
}
