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

// run has the entity take events and run all operations, and returns what is to
// be sent. It counts what ran.
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

// A client's signal whose message was not deleted, because the worker died, comes
// again after whatever else came, and after whatever time nobody worked on the hub.
func TestMemory_KnowsASignalThatWasNotDeletedAfterManyOthers(t *testing.T) {
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

// What is settled is forgotten, and so is, after a while, what nobody knows to be.
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
		t.Errorf("the state has %d bytes although all is settled", n)
	}
	p.run(ran, thousand()...)
	p.run(ran, clientSignal("get"))
	if n := len(p.state.Encode()); n < 8000 {
		t.Errorf("the state has %d bytes: it cannot know a thousand that are not settled", n)
	}
	p.state.Settle()
	p.now = p.now.Add(2 * time.Hour)
	p.run(ran, clientSignal("get"))
	if n := len(p.state.Encode()); n > 2000 {
		t.Errorf("the state has %d bytes after hours", n)
	}
	if ran["get"] != 6_002 {
		t.Errorf("%d operations ran, want 6,002", ran["get"])
	}
}

// A day after it was busy, and a worker died meanwhile, an entity knows no more than
// one to which nothing of that came.
func TestMemory_IsThatOfAnotherAfterAWhile(t *testing.T) {
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
		t.Errorf("what it knows (-of another +of one that was busy):\n%s", diff)
	}
}

// Locks, releases and signals at a time are not sorted. Who sends them may do so
// again, with whatever others in between.
func TestMemory_KnowsWhatItsSenderSendsAgain(t *testing.T) {
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
		t.Errorf("the signal took effect %d times, and %q has the lock; want once and nobody", ran["get"], p.state.LockedBy())
	}
}

// The worker dies after the state is stored and before anything is sent. The hub
// stands still for longer than messages are sent again by themselves, and another
// message comes first: what was to be sent is sent once its cause comes again.
func TestMemory_WhatWasNotSentIsSentWhenItsCauseComesAgain(t *testing.T) {
	for _, cause := range []*history.EventRaised{
		clientSignal("sigother"),
		op(entity.Request{Operation: "sigother", Signal: true, Parent: "q", ParentExecution: "x", Timestamp: noon}),
	} {
		p, ran := newPlay(t), map[string]int{}
		if sent := p.run(ran, cause); len(sent) != 2 {
			t.Fatalf("%d messages are to be sent, want 2", len(sent))
		}
		p.now = p.now.Add(time.Hour)
		if sent := p.run(ran, clientSignal("get")); len(sent) != 0 {
			t.Errorf("%d messages are sent without need", len(sent))
		}
		p.state.Settle()
		p.now = p.now.Add(time.Minute)
		if sent := p.run(ran, cause); len(sent) != 2 || ran["sigother"] != 1 {
			t.Errorf("%d messages are sent, want 2; the operation ran %d times", len(sent), ran["sigother"])
		}
		p.state.Settle()
		if sent := p.run(ran, cause); len(sent) != 0 {
			t.Errorf("%d messages are sent yet again", len(sent))
		}
	}
}

// A worker dies, and nobody works on the hub for longer than the sorter remembers who
// sent what. An orchestration whose checkpoint was lost then sends its request again,
// after another's has made the sorter forget it.
func TestMemory_KnowsWhatTheSorterForgetsAfterADowntime(t *testing.T) {
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

// What is sent once more says what it said the first time, whatever is said.
func TestMemory_WhatIsSentAgainIsWhatWasSent(t *testing.T) {
	p, cause, due := newPlay(t), clientSignal("all"), noon.Add(time.Hour)
	target := entity.ID{Name: "counter", Key: "b"}
	b := p.begin(cause)
	if _, ok := b.Next(); !ok {
		t.Fatal("nothing runs")
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
		t.Errorf("of %d messages, want 4 (-sent +sent again):\n%s", len(sent), diff)
	}
}

// The event by which an entity goes on with a large batch has no request whose ID
// would be known.
func TestMemory_AnEventToGoOnIsACauseToo(t *testing.T) {
	p, ran := newPlay(t), map[string]int{}
	p.settings.MaxBatch = 1
	goOn := p.run(ran, clientSignal("get"), clientSignal("sigother"))
	if len(goOn) != 1 || goOn[0].Name != "continue" {
		t.Fatalf("sent %v, want one event to go on", goOn)
	}
	p.state.Settle()
	cause := &history.EventRaised{Name: goOn[0].Name, Input: goOn[0].Input}
	if sent := p.run(ran, cause); len(sent) != 2 {
		t.Fatalf("%d messages are to be sent, want 2", len(sent))
	}
	p.now = p.now.Add(time.Hour)
	p.run(ran, clientSignal("get"))
	if sent := p.run(ran, cause); len(sent) != 2 {
		t.Errorf("%d messages are sent, want 2", len(sent))
	}
}

// episode returns signals that an orchestration sends in one episode, all with
// the same IDs each time.
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

// An episode signals an entity a thousand times, and its checkpoint is lost. It
// runs again and sends the same, which is labelled by the time of then.
func TestMemory_KnowsALargeEpisodeThatIsSentAgain(t *testing.T) {
	for _, downtime := range []time.Duration{5 * time.Minute, 3 * time.Hour} {
		p, ran := newPlay(t), map[string]int{}
		var lost, counts entity.Sorter
		p.run(ran, episode(&lost, 1, 1000, noon)...)
		if downtime < time.Hour {
			p.state.Settle()
		}
		p.now = p.now.Add(downtime)
		if downtime > time.Hour { // one that sends when the hub is back comes first
			other := entity.Request{ID: entity.DeriveID("other"), Operation: "other", Signal: true, Parent: "r", Timestamp: p.now}
			p.run(ran, op(other))
			p.state.Settle()
		}
		p.run(ran, episode(&counts, 1, 1000, p.now)...)
		p.state.Settle()
		if ran["1"] != 1000 {
			t.Errorf("after %v: %d signals took effect, want 1,000", downtime, ran["1"])
		}
		if downtime < time.Hour && len(p.state.Encode()) < 8000 {
			t.Errorf("the state has %d bytes: it cannot know a thousand", len(p.state.Encode()))
		}
		for n := range 3 {
			p.now = p.now.Add(time.Second)
			p.run(ran, episode(&counts, 2+n, 1, p.now)...)
			p.state.Settle()
		}
		if ran["2"]+ran["3"]+ran["4"] != 3 {
			t.Errorf("after %v: of the next episodes %v took effect", downtime, ran)
		}
		if n := len(p.state.Encode()); downtime < time.Hour && n > 1000 {
			t.Errorf("the state has %d bytes although the sender has gone on", n)
		}
	}
}

// GUIDs of some kinds begin with the time, so that many begin alike.
func TestMemory_TellsIDsApartThatBeginAlike(t *testing.T) {
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

// A request was on its way for hours, while nobody worked on the hub. What its
// sender sends next makes the sorter forget the sender; then the first comes
// again, since the sender's checkpoint was not settled.
func TestMemory_KnowsWhatCameLate(t *testing.T) {
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

// Two workers whose clocks differ take turns (found by the simulator, seed 7618 of the
// apps with entities).
func TestMemory_KnowsWhatCameWhateverTheClocks(t *testing.T) {
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

// A burst of clients' signals makes no lock or release forgotten, nor the other way round.
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

// What an earlier version has stored is known: clients' signals, a lock and its release,
// the requests of executions of which some were forgotten, and what a batch sent that is
// not settled.
func TestMemory_KnowsWhatAnEarlierVersionKnew(t *testing.T) {
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

// A worker that does not know whether the last batch is settled may send its outbox again
// at once.
func TestMemory_TheLastOutboxIsSentAgainIfThatIsSet(t *testing.T) {
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
