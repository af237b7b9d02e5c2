package entity_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/go-cmp/cmp"
)

// run applies events, runs all operations, and returns the messages to send. It counts in ran
// which operations ran.
func (p *play) run(ran map[string]int, events ...history.Event) (sent []entity.Message) {
	p.Helper()
	b := p.begin(events...)
	for op, ok := b.Next(); ok; op, ok = b.Next() {
		ran[op.Name]++
		b.Done(recordedCounter(op))
	}
	sent = b.Finish("execution")
	p.state = stored(p.T, p.state)
	return sent
}

// The message of a client's signal is not deleted, because the worker dies. It is redelivered
// after many other signals, and after a downtime of any length.
func TestMemory_RecognizesARedeliveredSignalAfterManyOthers(t *testing.T) {
	for _, downtime := range []time.Duration{0, 3 * 24 * time.Hour} {
		p, ran, signal := newPlay(t), map[string]int{}, clientSignal("get")
		p.run(ran, signal)
		p.now = p.now.Add(downtime)
		for range 150 {
			p.run(ran, clientSignal("fail"))
			p.state.Settle()
		}
		p.run(ran, signal)
		if ran["get"] != 1 || ran["fail"] != 150 {
			t.Errorf("after %v: ran %v, want get once and 150 others", downtime, ran)
		}
	}
}

// The IDs of settled batches are dropped. The IDs of unsettled batches are dropped after a
// while.
func TestMemory_DoesNotGrow(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	thousand := func() (signals []history.Event) {
		for range 1000 {
			signals = append(signals, clientSignal("get"))
		}
		return signals
	}
	for range 5 {
		p.run(ran, thousand()...)
		p.state.Settle()
		p.now = p.now.Add(time.Minute)
	}
	if n := len(p.state.Encode()); n > 2000 {
		t.Errorf("the state has %d bytes although all batches are settled", n)
	}
	p.run(ran, thousand()...)
	p.run(ran, clientSignal("get"))
	if n := len(p.state.Encode()); n < 8000 {
		t.Errorf("the state has %d bytes, too few for the IDs of a thousand unsettled signals", n)
	}
	p.state.Settle()
	p.now = p.now.Add(2 * time.Hour)
	p.run(ran, clientSignal("get"))
	if n := len(p.state.Encode()); n > 2000 {
		t.Errorf("the state has %d bytes two hours later", n)
	}
	if ran["get"] != 6_002 {
		t.Errorf("%d operations ran, want 6,002", ran["get"])
	}
}

// An entity is busy, and a worker dies. A day later its state equals the state of an
// entity that was not busy.
func TestMemory_HoldsNothingOfABusyDayADayLater(t *testing.T) {
	run := func(busy bool) string {
		p, ran := newPlay(t), map[string]int{}
		from := func(sender, execution string, due time.Time) *history.EventRaised {
			return op(entity.Request{ID: p.now.String() + due.String(), Operation: "get", Signal: true, Parent: sender, ParentExecution: execution, Timestamp: p.now, Due: due})
		}
		for i := range 10 {
			if !busy {
				break
			}
			p.now = p.now.Add(time.Second)
			p.run(ran, from("q", fmt.Sprint(i), time.Time{}), from("q", fmt.Sprint(i), p.now))
			if i != 5 {
				p.state.Settle()
			}
		}
		p.now = p.now.Truncate(time.Minute).Add(24 * time.Hour)
		for range 3 {
			p.now = p.now.Add(time.Hour)
			p.run(ran, from("r", "x", time.Time{}))
			p.state.Settle()
		}
		return p.state.Encode()
	}
	if diff := cmp.Diff(run(false), run(true)); diff != "" {
		t.Errorf("state (-of an idle entity +of a busy one):\n%s", diff)
	}
}

// Locks, releases and scheduled signals are not sorted. Their senders may send them again after
// many other messages.
func TestMemory_RecognizesRepeatedLocksReleasesAndScheduledSignals(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	scheduled := op(entity.Request{Operation: "get", Signal: true, Parent: "q", ParentExecution: "x", Due: noon})
	for range 2 {
		p.run(ran, scheduled, op(lockRequest("p", 1, "0", "a")), release("p"))
		for range 150 {
			p.state.Settle()
			p.run(ran, clientSignal("fail"))
		}
	}
	if ran["get"] != 1 || p.state.LockedBy() != "" {
		t.Errorf("the signal took effect %d times and %q has the lock; want 1 time and no holder", ran["get"], p.state.LockedBy())
	}
}

// The worker dies after it stored the state and before it sent anything. The hub is down for
// longer than Resend applies, and another message arrives first. The outbox is sent when the
// first message is redelivered.
func TestMemory_ARedeliveredMessageResendsTheOutboxOfItsBatch(t *testing.T) {
	for _, cause := range []*history.EventRaised{
		clientSignal("sigother"),
		op(entity.Request{Operation: "sigother", Signal: true, Parent: "q", ParentExecution: "x", Timestamp: noon}),
	} {
		p, ran := newPlay(t), map[string]int{}
		if sent := p.run(ran, cause); len(sent) != 2 {
			t.Fatalf("the outbox has %d messages, want 2", len(sent))
		}
		p.now = p.now.Add(time.Hour)
		if sent := p.run(ran, clientSignal("get")); len(sent) != 0 {
			t.Errorf("%d messages are sent again before the cause was redelivered", len(sent))
		}
		p.state.Settle()
		p.now = p.now.Add(time.Minute)
		if sent := p.run(ran, cause); len(sent) != 2 || ran["sigother"] != 1 {
			t.Errorf("%d messages are sent, want 2; the operation ran %d times", len(sent), ran["sigother"])
		}
		p.state.Settle()
		if sent := p.run(ran, cause); len(sent) != 0 {
			t.Errorf("%d messages are sent again after the batch was settled", len(sent))
		}
	}
}

// A worker dies, and the hub is down for longer than the reorder window. A request of another
// sender then makes the sorter forget the first sender. An orchestration whose checkpoint was
// lost sends its request again.
func TestMemory_RecognizesARequestWhoseSenderTheSorterForgot(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	from := func(sender, name string) *history.EventRaised {
		return op(entity.Request{Operation: name, Signal: true, Parent: sender, ParentExecution: "x", Timestamp: p.now})
	}
	request := from("q", "get")
	p.run(ran, request)
	p.state.Settle()
	p.run(ran, clientSignal("fail"))
	p.now = p.now.Add(2 * window)
	p.run(ran, from("r", "fail"))
	p.run(ran, request)
	if ran["get"] != 1 || ran["fail"] != 2 {
		t.Errorf("ran %v, want get once and fail twice", ran)
	}
}

// A message that is sent again has the same content, whatever its kind.
func TestMemory_ResentMessagesAreEqual(t *testing.T) {
	p, cause, due := newPlay(t), clientSignal("all"), noon.Add(time.Hour)
	target := entity.ID{Name: "counter", Key: "b"}
	b := p.begin(cause)
	if _, ok := b.Next(); !ok {
		t.Fatal("the batch has no operation")
	}
	b.Done(entity.Result{State: new("1"), Actions: []entity.Action{
		&entity.Signal{Target: target, Operation: "now", Input: new("1")},
		&entity.Signal{Target: target, Operation: "later", Due: due},
		&entity.Start{Name: "O", InstanceID: "o"},
		&entity.Start{Name: "O", Version: "2", InstanceID: "o2", Input: new(`"x"`), Tags: map[string]string{"a": "b"}, Due: due},
	}})
	sent := b.Finish("execution")
	p.state = stored(t, p.state)
	if diff := cmp.Diff(sent, p.run(map[string]int{}, cause)); diff != "" || len(sent) != 4 {
		t.Errorf("sent %d messages, want 4 (-sent +sent again):\n%s", len(sent), diff)
	}
}

// The event that makes an entity continue with a large batch is not a request.
func TestMemory_ARedeliveredContinuationResendsTheOutboxOfItsBatch(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	p.settings.MaxBatch = 1
	continuation := p.run(ran, clientSignal("get"), clientSignal("sigother"))
	if len(continuation) != 1 || continuation[0].Name != "continue" {
		t.Fatalf("sent %v, want one continuation", continuation)
	}
	p.state.Settle()
	cause := &history.EventRaised{Name: continuation[0].Name, Input: continuation[0].Input}
	if sent := p.run(ran, cause); len(sent) != 2 {
		t.Fatalf("the outbox has %d messages, want 2", len(sent))
	}
	p.now = p.now.Add(time.Hour)
	p.run(ran, clientSignal("get"))
	if sent := p.run(ran, cause); len(sent) != 2 {
		t.Errorf("%d messages are sent, want 2", len(sent))
	}
}

// episode returns the n signals of an orchestration's episode with the given number. Their IDs
// do not depend on s or at.
func episode(s *entity.Sorter, number, n int, at time.Time) []history.Event {
	var events []history.Event
	for i := range n {
		r := entity.Request{
			ID: entity.DeriveID(fmt.Sprint(number), fmt.Sprint(i)), Operation: fmt.Sprint(number),
			Signal: true, Parent: "q", ParentExecution: "x",
		}
		s.Label(&r, "@counter@a", at, window)
		events = append(events, op(r))
	}
	return events
}

// An episode sends a thousand signals to an entity, and its checkpoint is lost. It runs again
// and sends the same signals with later labels.
func TestMemory_RecognizesTheSignalsOfALargeRepeatedEpisode(t *testing.T) {
	for _, downtime := range []time.Duration{5 * time.Minute, 3 * time.Hour} {
		p, ran := newPlay(t), map[string]int{}
		var lost, committed entity.Sorter
		p.run(ran, episode(&lost, 1, 1000, noon)...)
		if downtime < time.Hour {
			p.state.Settle()
		}
		p.now = p.now.Add(downtime)
		if downtime > time.Hour { // another sender's request arrives first after the downtime
			other := entity.Request{ID: entity.DeriveID("other"), Operation: "other", Signal: true, Parent: "r", Timestamp: p.now}
			p.run(ran, op(other))
			p.state.Settle()
		}
		p.run(ran, episode(&committed, 1, 1000, p.now)...)
		p.state.Settle()
		if ran["1"] != 1000 {
			t.Errorf("after %v: %d signals took effect, want 1,000", downtime, ran["1"])
		}
		if downtime < time.Hour && len(p.state.Encode()) < 8000 {
			t.Errorf("the state has %d bytes, too few for the IDs of a thousand signals", len(p.state.Encode()))
		}
		for n := range 3 {
			p.now = p.now.Add(time.Second)
			p.run(ran, episode(&committed, 2+n, 1, p.now)...)
			p.state.Settle()
		}
		if ran["2"]+ran["3"]+ran["4"] != 3 {
			t.Errorf("after %v: the operations of the next episodes ran %v times, want once each", downtime, ran)
		}
		if n := len(p.state.Encode()); downtime < time.Hour && n > 1000 {
			t.Errorf("the state has %d bytes although later episodes of the sender arrived", n)
		}
	}
}

// Some kinds of GUIDs start with the time, so IDs may share a prefix.
func TestMemory_DistinguishesIDsWithTheSamePrefix(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	var signals []history.Event
	for i := range 1000 {
		signals = append(signals, op(entity.Request{ID: fmt.Sprintf("01980000-0000-7000-8000-%012x", i), Operation: "get", Signal: true}))
	}
	p.run(ran, signals...)
	if ran["get"] != 1000 {
		t.Errorf("%d of 1,000 signals took effect", ran["get"])
	}
}

// A request is in flight for hours while the hub is down. The next request of its sender makes
// the sorter forget the sender. Then the first request is redelivered, because its batch is not
// settled.
func TestMemory_RecognizesALateRequestThatIsRedelivered(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	var s entity.Sorter
	late := episode(&s, 1, 1, noon)
	p.now = noon.Add(3 * time.Hour)
	p.run(ran, late...)
	p.state.Settle()
	p.run(ran, episode(&s, 2, 1, p.now)...)
	p.state.Settle()
	p.run(ran, late...)
	if ran["1"] != 1 || ran["2"] != 1 {
		t.Errorf("ran %v, want each once", ran)
	}
}

// Two workers with different clocks take turns (found by the simulator, seed 7618 of the apps
// with entities).
func TestMemory_RecognizesDuplicatesIfClocksDiffer(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	scheduled := func() *history.EventRaised {
		return op(entity.Request{Operation: "get", Signal: true, Parent: "q", ParentExecution: "x", Due: noon})
	}
	first := scheduled()
	for i, event := range []history.Event{first, scheduled(), scheduled(), first} {
		p.now = noon.Add(time.Duration(i%2) * time.Minute)
		p.run(ran, event)
		p.state.Settle()
	}
	if ran["get"] != 3 {
		t.Errorf("%d signals took effect, want 3", ran["get"])
	}
}

// A burst of clients' signals evicts no IDs of locks and releases, and vice versa.
func TestMemory_EachReasonHasALimitOfItsOwn(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	signal, lock := clientSignal("get"), op(lockRequest("p", 1, "0", "a"))
	burst := func(events int, event func(n int) history.Event) {
		var all []history.Event
		for n := range events {
			all = append(all, event(n))
		}
		p.run(ran, all...)
		p.state.Settle()
	}
	p.run(ran, lock, release("p"))
	p.state.Settle()
	burst(3000, func(int) history.Event { return clientSignal("fail") })
	burst(900, func(n int) history.Event { return release(fmt.Sprint("first ", n)) })
	p.run(ran, lock)
	if p.state.LockedBy() != "" {
		t.Error("a lock was granted again after many signals and some releases")
	}
	p.run(ran, signal)
	p.state.Settle()
	burst(3000, func(n int) history.Event { return release(fmt.Sprint(n)) })
	p.run(ran, signal)
	if ran["get"] != 1 {
		t.Errorf("a client's signal took effect %d times after many releases", ran["get"])
	}
	if n := len(p.state.Encode()); n > 20_000 {
		t.Errorf("the state has %d bytes", n)
	}
}

// A state of an earlier version contains a client's signals, a lock and its release. It also
// contains requests of forgotten and other executions, and the outbox of an unsettled batch.
func TestMemory_ReadsTheStateOfAnEarlierVersion(t *testing.T) {
	text, err := os.ReadFile("testdata/earlier.json")
	if err != nil {
		t.Fatal(err)
	}
	p, ran := newPlay(t), map[string]int{}
	p.now = noon.Add(2 * time.Minute)
	if p.state, err = entity.DecodeState(new(string(text))); err != nil {
		t.Fatal(err)
	}
	signal := func(name string, id ...string) history.Event {
		return op(entity.Request{ID: entity.DeriveID(id...), Operation: name, Signal: true})
	}
	p.run(ran, signal("get", "earlier", "1"), signal("get", "earlier", "2"), op(lockRequest("p", 1, "0", "a")), release("p"))
	for n := range 7 {
		p.run(ran, op(entity.Request{
			ID: entity.DeriveID("of q", fmt.Sprint(n)), Operation: "get", Signal: true,
			Parent: "q", ParentExecution: fmt.Sprint(n), Timestamp: noon.Add(time.Duration(n) * time.Second),
		}))
	}
	if sent := p.run(ran, signal("sigother", "cause")); len(sent) != 2 {
		t.Errorf("%d messages are sent again, want 2", len(sent))
	}
	if len(ran) > 0 || p.state.LockedBy() != "" {
		t.Errorf("%v took effect again, and %q has the lock", ran, p.state.LockedBy())
	}
}

// A worker that does not know whether the last batch is settled may send its outbox again at
// once.
func TestMemory_ResendSendsTheLastOutboxAgain(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	p.run(ran, clientSignal("sigother"))
	p.settings.Resend = true
	for i, want := range []int{2, 2, 0} {
		if i == 2 {
			p.state.Settle()
		}
		if sent := p.run(ran, clientSignal("get")); len(sent) != want {
			t.Errorf("batch %d sends %d messages, want %d", i, len(sent), want)
		}
	}
}
