package entity_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/go-cmp/cmp"
)

// deliver applies requests to an entity and returns the operations that ran.
func deliver(t *testing.T, state *entity.State, requests []*entity.Request) (ran []*entity.Operation) {
	t.Helper()
	var events []history.Event
	for _, r := range requests {
		events = append(events, &history.EventRaised{Name: "op", Input: new(r.Encode())})
	}
	b, problems := entity.Begin("@counter@a", state, events, noon, settings)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for op, ok := b.Next(); ok; op, ok = b.Next() {
		ran = append(ran, op)
		b.Done(entity.Result{State: op.State})
	}
	b.Finish("execution")
	return ran
}

// stored encodes and decodes state.
func stored(t *testing.T, state *entity.State) *entity.State {
	t.Helper()
	read, err := entity.DecodeState(new(state.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state.Encode(), read.Encode()); diff != "" {
		t.Fatalf("the decoded state differs (-encoded +decoded):\n%s", diff)
	}
	return read
}

// A play is an entity that receives events.
type play struct {
	*testing.T
	state    *entity.State
	settings entity.Settings
	now      time.Time
	log      []string // operations that ran and messages that were sent
}

func newPlay(t *testing.T) *play {
	return &play{T: t, state: new(entity.State), settings: settings, now: noon}
}

func (p *play) begin(events ...history.Event) *entity.Batch {
	p.Helper()
	b, problems := entity.Begin("@counter@a", p.state, events, p.now, p.settings)
	for _, problem := range problems {
		p.log = append(p.log, "problem: "+problem.Error())
	}
	return b
}

func (p *play) finish(b *entity.Batch) {
	sent := b.Finish("execution")
	p.state.ForgetOutbox()
	for _, m := range sent {
		text := m.Name + " to " + m.Target.InstanceID
		if len(m.Name) == 36 {
			text = "answer to " + m.Target.InstanceID
		}
		if m.Input != nil && (strings.Contains(*m.Input, "Lock Acq") || strings.Contains(*m.Input, `"pos"`) || strings.Contains(*m.Input, "result")) {
			text += " " + strings.SplitN(*m.Input, `"parent"`, 2)[0]
		}
		p.log = append(p.log, text)
	}
	p.state = stored(p.T, p.state)
}

func (p *play) get(events ...history.Event) {
	p.Helper()
	b := p.begin(events...)
	for op, ok := b.Next(); ok; op, ok = b.Next() {
		p.log = append(p.log, "ran "+op.Name)
		b.Done(recordedCounter(op))
	}
	p.finish(b)
}

func (p *play) want(log ...string) {
	p.Helper()
	if diff := cmp.Diff(log, p.log); diff != "" {
		p.Errorf("(-want +got):\n%s", diff)
	}
	p.log = nil
}

var requests atomic.Int64 // number of requests created

func requestNumber() string { return entity.DeriveID(fmt.Sprint(requests.Add(1))) }

func op(r entity.Request) *history.EventRaised {
	if r.ID == "" {
		r.ID = requestNumber()
	}
	return &history.EventRaised{Name: "op", Input: new(r.Encode())}
}

func clientSignal(name string) *history.EventRaised {
	return op(entity.Request{Operation: name, Signal: true})
}

func lockRequest(parent string, position int, keys ...string) entity.Request {
	r := entity.Request{ID: entity.DeriveID("lock of", parent), Parent: parent, ParentExecution: "x", Position: position}
	for _, k := range keys {
		r.LockSet = append(r.LockSet, entity.ID{Name: "counter", Key: k})
	}
	return r
}

func release(parent string) *history.EventRaised {
	name, text := entity.NewRelease(entity.Release{Parent: parent, ID: entity.DeriveID("lock of", parent)})
	return &history.EventRaised{Name: name, Input: &text}
}

func TestBatch_ALockExcludesOtherSenders(t *testing.T) {
	p := newPlay(t)
	p.settings.Window = 0
	p.get(op(lockRequest("p", 0, "a", "b")))
	p.want(`op to @counter@b {"op":null,"id":"` + entity.DeriveID("lock of", "p") + `",`)
	p.get(clientSignal("get"), op(lockRequest("q", 0, "a")))
	p.want()
	p.get(op(entity.Request{Operation: "get", Parent: "p", ParentExecution: "x"}))
	p.want("ran get", `answer to p {"result":null}`)
	if p.state.LockedBy() != "p" || p.state.Status().QueueSize != 2 {
		t.Errorf("the entity is %+v", p.state.Status())
	}
	p.get(release("p"))
	p.want("ran get", `answer to q {"result":"Lock Acquisition Completed"}`)
	p.get(release("p"))
	if p.state.LockedBy() != "q" {
		t.Errorf("%q has the lock, want q", p.state.LockedBy())
	}
}

func TestBatch_TheHoldersRequestsRunFirst(t *testing.T) {
	p := newPlay(t)
	p.settings.Window = 0
	p.get(op(lockRequest("p", 0, "a")))
	p.log = nil
	p.get(clientSignal("of others"), op(entity.Request{Operation: "of the holder", Signal: true, Parent: "p"}))
	p.want("ran of the holder")
	p.get(release("p"))
	p.want("ran of others")
}

// Lock requests that other entities pass on may overtake earlier requests of their sender.
// These run as soon as the lock is granted, before the requests that the holder sends
// afterwards.
func TestBatch_EarlierRequestsOfTheHolderRunBeforeLaterOnes(t *testing.T) {
	p := newPlay(t)
	request := func(name string, at time.Duration) *history.EventRaised {
		return op(entity.Request{Operation: name, Signal: true, Parent: "p", ParentExecution: "x", Timestamp: noon.Add(at)})
	}
	p.get(op(lockRequest("p", 1, "0", "a")), clientSignal("of others"), request("before", 0))
	p.want(`answer to p {"result":"Lock Acquisition Completed"}`, "continue to @counter@a")
	p.get(request("after", time.Second))
	p.want("ran before", "ran after")
	p.get(release("p"))
	p.want("ran of others")
}

func TestBatch_AReleaseEndsItsOwnLockOnly(t *testing.T) {
	p := newPlay(t)
	p.settings.Window = 0
	p.get(op(lockRequest("p", 0, "a")))
	p.get(release("p"))
	second := lockRequest("p", 0, "a")
	second.ID = entity.DeriveID("another lock")
	p.get(op(second))
	p.get(release("p"))
	if p.state.LockedBy() != "p" {
		t.Error("a duplicate release ended the holder's next lock")
	}
	name, text := entity.NewRelease(entity.Release{Parent: "p", ID: entity.OrphanedLock})
	p.get(&history.EventRaised{Name: name, Input: &text})
	if p.state.LockedBy() != "" {
		t.Error("the release of an orphaned lock did not end it")
	}
}

// The checkpoint of an episode is lost after its requests were sent. Another attempt sends them
// with other IDs.
func TestBatch_RequestsOfOneOriginTakeEffectOnce(t *testing.T) {
	for _, window := range []time.Duration{0, settings.Window} {
		p := newPlay(t)
		p.settings.Window = window
		call := entity.Request{Operation: "get", Parent: "p", ParentExecution: "x", Timestamp: noon, Origin: "same"}
		p.get(op(call))
		p.want("ran get", `answer to p {"result":null,"origin":"same"}`)
		call.Timestamp = noon.Add(time.Minute)
		p.get(op(call))
		p.want()
	}
}

func TestBatch_AReleaseEndsTheLockOfAnotherAttempt(t *testing.T) {
	for _, r := range []entity.Release{
		{Parent: "p", ID: entity.DeriveID("the attempt that counts"), Origin: "same"},
		{Parent: "p", ID: entity.DeriveID("the attempt that counts")}, // .NET sends no origin
	} {
		p := newPlay(t)
		p.settings.Window = 0
		lock := lockRequest("p", 0, "a")
		lock.Origin = "same"
		p.get(op(lock))
		p.want(`answer to p {"result":"Lock Acquisition Completed","origin":"same"}`)
		name, text := entity.NewRelease(r)
		released := &history.EventRaised{Name: name, Input: &text}
		p.get(released)
		if p.state.LockedBy() != "" {
			t.Errorf("%+v did not end the lock", r)
		}
		next := lockRequest("p", 0, "a")
		next.ID, next.Origin = entity.DeriveID("the next lock"), "next"
		p.get(op(next))
		p.get(released)
		if p.state.LockedBy() != "p" {
			t.Errorf("%+v was redelivered and ended the next lock", r)
		}
	}
}

func TestBatch_AReleaseThatArrivesFirstVoidsTheLock(t *testing.T) {
	for _, position := range []int{0, 1} {
		p := newPlay(t)
		p.get(release("p"))
		p.get(op(lockRequest("p", position, "b", "a")))
		if p.state.LockedBy() != "" {
			t.Errorf("a released lock was granted at position %d", position)
		}
	}
}

func TestBatch_AReleaseVoidsADuplicateLockRequest(t *testing.T) {
	p := newPlay(t)
	state, err := entity.DecodeState(new(`{"lockedBy":"p","sorter":{}}`)) // written by .NET, which does not hold the IDs of requests
	if err != nil {
		t.Fatal(err)
	}
	p.state = state
	p.get(op(lockRequest("p", 1, "0", "a")), release("p"))
	if p.state.LockedBy() != "" {
		t.Error("the lock was granted again")
	}
}

func TestBatch_ALockThatIsPassedOnTwiceIsGrantedOnce(t *testing.T) {
	p := newPlay(t)
	p.get(op(lockRequest("p", 1, "0", "a")))
	p.get(release("p"))
	p.get(op(lockRequest("p", 1, "0", "a")))
	if p.state.LockedBy() != "" {
		t.Error("a lock was granted a second time")
	}
}

func TestBatch_StopsAtTheMaximumSizeAndContinues(t *testing.T) {
	p := newPlay(t)
	p.settings.MaxBatch = 2
	p.get(clientSignal("1"), clientSignal("2"), clientSignal("3"))
	p.want("ran 1", "ran 2", "continue to @counter@a")
	p.get(&history.EventRaised{Name: "continue"})
	p.want("ran 3")
}

func TestBatch_AnEntitySuspendedByAnOlderSchedulerWaitsForAContinuation(t *testing.T) {
	p := newPlay(t)
	state, err := entity.DecodeState(new(`{"exists":true,"state":"4","suspended":true,"sorter":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	p.state = state
	p.get(clientSignal("get"))
	p.want()
	p.get(&history.EventRaised{Name: "continue"})
	p.want("ran get")
}

func TestBatch_DeferReturnsOperationsThatDidNotRunToTheQueue(t *testing.T) {
	p := newPlay(t)
	b := p.begin(clientSignal("1"), clientSignal("2"), clientSignal("3"), op(lockRequest("p", 0, "a")))
	first, _ := b.Next()
	b.Done(recordedCounter(first))
	b.Defer()
	p.finish(b)
	p.want("continue to @counter@a")
	p.get(&history.EventRaised{Name: "continue"})
	p.want("ran 2", "ran 3", `answer to p {"result":"Lock Acquisition Completed"}`)
}

func TestBatch_AnEarlyRequestIsSentAgainInStepsOfSixDays(t *testing.T) {
	p := newPlay(t)
	due := noon.Add(10 * 24 * time.Hour)
	p.get(op(entity.Request{Operation: "get", Signal: true, Due: due}))
	p.want("op@2026-11-26T12:00:00.0000000Z to @counter@a")
	p.now = due.Add(-24 * time.Hour)
	p.get(op(entity.Request{Operation: "get", Signal: true, Due: due}))
	p.want("op@2026-11-30T12:00:00.0000000Z to @counter@a")
	p.now = due.Add(-100 * time.Millisecond)
	p.get(op(entity.Request{Operation: "get", Signal: true, Due: due}))
	p.want("ran get")
}

func TestBatch_ADuplicateSignalOfAClientRunsOnce(t *testing.T) {
	p := newPlay(t)
	signal := clientSignal("get")
	p.get(signal, signal)
	p.get(clientSignal("fail"))
	p.get(signal)
	p.want("ran get", "ran fail")
}

func TestBatch_RollsBackFailedOperations(t *testing.T) {
	for keep, want := range map[bool]string{false: "<nil>", true: "1"} {
		p := newPlay(t)
		p.settings.KeepFailedEffects = keep
		b := p.begin(clientSignal("x"))
		if _, ok := b.Next(); !ok {
			t.Fatal("the batch has no operation")
		}
		b.Done(entity.Result{
			State: new("1"), Failure: &history.FailureDetails{ErrorMessage: "oh"},
			Actions: []entity.Action{&entity.Signal{Target: entity.ID{Name: "other"}, Operation: "add"}},
		})
		sent := len(b.Finish(""))
		got := "<nil>"
		if p.state.Text != nil {
			got = *p.state.Text
		}
		if got != want || sent != len(want)%5 {
			t.Errorf("KeepFailedEffects is %v: the state is %s and %d signals are sent", keep, got, sent)
		}
	}
}

func TestBatch_UndecodableEventsAreDiscardedAndReported(t *testing.T) {
	p := newPlay(t)
	for _, e := range []*history.EventRaised{
		{Name: "op"},
		{Name: "op", Input: new("no JSON")},
		{Name: "op", Input: new(`{"op":"get"}`)},
		{Name: "op", Input: new(`{"op":null,"id":"1","parent":"p","lockset":[{"name":"a","key":"b"}],"pos":7}`)},
		{Name: "op", Input: new(`{"op":null,"id":"1","lockset":[{"name":"a","key":"b"}]}`)},
		{Name: "release"},
		{Name: "release", Input: new(`{}`)},
	} {
		p.get(e)
		if len(p.log) != 1 || !strings.HasPrefix(p.log[0], "problem: ") {
			t.Errorf("%s %v: got %v", e.Name, e.Input, p.log)
		}
		p.log = nil
	}
}

func TestRequest_DecodesRequestsOfTheOlderScheduler(t *testing.T) {
	text := `{"$type":"Microsoft.Azure.WebJobs.Extensions.DurableTask.RequestMessage, Microsoft.Azure.WebJobs.Extensions.DurableTask",` +
		`"op":null,"id":"3333AAAA-3333-3333-3333-333333333333","parent":"p","parentExecution":"x","Timestamp":"2026-11-20T18:34:39.1752517Z",` +
		`"Predecessor":"0001-01-01T00:00:00","lockset":[{"$type":"Microsoft.Azure.WebJobs.Extensions.DurableTask.EntityId, X","name":"counter","key":"k"}]}`
	r, err := entity.DecodeRequest(&text)
	if err != nil {
		t.Fatal(err)
	}
	if !r.IsLock() || r.LockSet[0] != (entity.ID{Name: "counter", Key: "k"}) || r.ID != "3333aaaa-3333-3333-3333-333333333333" {
		t.Errorf("got %+v", r)
	}
}

func TestResponse_DecodesAnswersOfTheOlderScheduler(t *testing.T) {
	for text, want := range map[string]*history.FailureDetails{
		`{"result":"1"}`: nil,
		`{"result":"{\"Message\":\"oh\"}","exceptionType":"System.InvalidOperationException, System.Private.CoreLib"}`: {
			ErrorType: "System.InvalidOperationException", ErrorMessage: "oh",
		},
		`{"result":"plain","exceptionType":"E"}`: {ErrorType: "E", ErrorMessage: "plain"},
	} {
		r, err := entity.ParseResponse(&text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Failure); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestID_IsParsedAndPrinted(t *testing.T) {
	for text, want := range map[string]entity.ID{
		"@Counter@K1": {Name: "counter", Key: "K1"}, "@a@b@c": {Name: "a", Key: "b@c"}, "@a@": {Name: "a"},
	} {
		got, err := entity.ParseID(text)
		if err != nil || got != want || !strings.EqualFold(got.String(), text) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "@", "@a", "@@b", "a@b@c"} {
		if id, err := entity.ParseID(text); err == nil {
			t.Errorf("%q is %+v", text, id)
		}
	}
	for _, name := range []string{"", "a@b"} {
		if id, err := entity.NewID(name, "k"); err == nil {
			t.Errorf("an entity named %q is %+v", name, id)
		}
	}
}

func TestBatch_RepeatsReportsDuplicates(t *testing.T) {
	p := newPlay(t)
	signal, lock := clientSignal("get"), op(lockRequest("p", 1, "0", "a"))
	ordered := op(entity.Request{Operation: "get", Signal: true, Parent: "q", ParentExecution: "x", Timestamp: noon})
	for _, e := range []*history.EventRaised{signal, lock, release("p"), ordered} {
		for _, again := range []bool{false, true} {
			b := p.begin(e)
			if b.HasDuplicates() != again {
				t.Errorf("%s %s: Repeats is %v, want %v", e.Name, *e.Input, b.HasDuplicates(), again)
			}
			for op, ok := b.Next(); ok; op, ok = b.Next() {
				b.Done(recordedCounter(op))
			}
			p.finish(b)
		}
	}
}
