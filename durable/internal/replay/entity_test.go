package replay_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func counter(key string) entity.ID { return entity.ID{Name: "counter", Key: key} }

// requests returns the decoded requests to entities, in order.
func requests(t *testing.T, actions []replay.Action) (all []*entity.Request) {
	t.Helper()
	for _, a := range actions {
		if a, ok := a.(*replay.SendEvent); ok && strings.HasPrefix(a.Name, "op") {
			r, err := entity.DecodeRequest(a.Input)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// released returns the entities that were sent releases of locks.
func released(actions []replay.Action) (all []string) {
	for _, a := range actions {
		if a, ok := a.(*replay.SendEvent); ok && entity.IsRelease(a.Name) {
			all = append(all, a.InstanceID)
		}
	}
	return all
}

func answer(r *entity.Request, result string) *history.EventRaised {
	return replaytest.Raised(r.ID, entity.Response{Result: &result}.Encode())
}

func callEntity(x *replay.Execution, key, op string) (*string, error) {
	var f replay.Future
	x.CallEntity(&f, counter(key), op, nil)
	f.Await()
	r, err := f.EntityResponse()
	if err == nil && r.Failure != nil {
		err = errors.New(r.Failure.ErrorMessage)
	}
	return r.Result, err
}

func lock(x *replay.Execution, keys ...string) {
	var f replay.Future
	var ids []entity.ID
	for _, k := range keys {
		ids = append(ids, counter(k))
	}
	x.LockEntities(&f, ids)
	f.Await()
}

func TestEntities_RequestsHaveLabelsAndDistinctIDs(t *testing.T) {
	t.Parallel()
	s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
		x.SignalEntity(counter("a"), "add", new("5"), time.Time{})
		x.SignalEntity(counter("a"), "add", new("5"), time.Time{})
		x.SignalEntity(counter("b"), "add", new("5"), x.Now().Add(7*24*time.Hour))
		return callEntity(x, "a", "get")
	})
	sent := requests(t, s.Start(nil))
	now := history.TruncateToTicks(replaytest.Epoch)
	want := [][2]time.Time{{now, {}}, {now.Add(100), now}, {{}, {}}, {now.Add(200), now.Add(100)}}
	ids := map[string]bool{}
	for i, r := range sent {
		ids[r.ID] = true
		if !r.Timestamp.Equal(want[i][0]) || !r.Predecessor.Equal(want[i][1]) || r.Parent != "abc" || r.ParentExecution != "e0" || r.Signal != (i < 3) {
			t.Errorf("request %d is %+v, want labels %v", i, r, want[i])
		}
	}
	if len(ids) != 4 {
		t.Errorf("there are %d IDs, want 4", len(ids))
	}
	if name := s.Actions[2].(*replay.SendEvent).Name; name != entity.EventName(now.Add(6*24*time.Hour), now) {
		t.Errorf("the request that is due in a week is named %s", name)
	}
	s.Episode(answer(sent[3], "10"))
	if got := s.Output(history.Completed); got != "10" {
		t.Errorf("the call returned %s, want 10", got)
	}
}

// An episode is lost after it sent a scheduled signal, and runs again at another time. The
// signal must have the same origin (found by the simulator, seed 60 of the apps with entities).
func TestEntities_ARepeatedScheduledSignalHasTheSameOrigin(t *testing.T) {
	t.Parallel()
	attempt := func(later time.Duration) []*entity.Request {
		s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
			for range 2 {
				x.SignalEntity(counter("a"), "add", new("5"), x.Now().Add(time.Hour))
			}
			return nil, nil
		})
		s.Now = s.Now.Add(later)
		return requests(t, s.Start(nil))
	}
	first, again := attempt(0), attempt(time.Minute)
	for i := range first {
		if first[i].Origin != again[i].Origin || !again[i].Due.Equal(first[i].Due.Add(time.Minute)) {
			t.Errorf("signal %d is %s, due %v, and then %s, due %v", i, first[i].Origin, first[i].Due, again[i].Origin, again[i].Due)
		}
	}
	if first[0].Origin == first[1].Origin {
		t.Errorf("both signals are %s", first[0].Origin)
	}
}

// When .NET replays the history, it generates the IDs of the execution again, and waits for
// events with these names (durabletask-dotnet's TaskOrchestrationContextWrapper.cs and
// TaskOrchestrationEntityContext.cs). Each GUID, request and child without an ID counts.
func TestEntities_RequestIDsEqualTheIDsOfDurabletaskDotnet(t *testing.T) {
	t.Parallel()
	var got []string
	s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
		got = []string{x.NewGUID().String()}
		x.SignalEntity(counter("a"), "add", nil, time.Time{})
		x.CountChild()
		x.CreateSubOrchestration(new(replay.Future), "C", "", nil)
		x.SignalEntity(counter("a"), "add", nil, time.Time{})
		lock(x, "a")
		_, err := callEntity(x, "a", "get")
		got = append(got, x.NewGUID().String())
		return nil, err
	})
	sent := requests(t, s.Start(nil)) // instance abc at 2024-10-01T12:00:00.1234567Z
	s.Now = s.Now.Add(time.Minute)
	more := requests(t, s.Episode(answer(sent[2], "Lock Acquisition Completed")))
	s.Episode(answer(more[0], "1"))
	for _, r := range append(sent, more...) {
		got = append(got, r.ID)
	}
	want := []string{dotnetGUID(s.Now.Add(-time.Minute), 0), dotnetGUID(s.Now, 6)}
	for _, n := range []int{1, 3, 4} {
		want = append(want, dotnetGUID(s.Now.Add(-time.Minute), n))
	}
	want = append(want, dotnetGUID(s.Now, 5))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("IDs (-want +got):\n%s", diff)
	}
	if want[0] != "c98c7c85-b4aa-5e52-9eac-441911159cbc" {
		t.Errorf("the first is %s", want[0])
	}
}

// dotnetGUID returns the GUID with index n of instance abc at the given time.
func dotnetGUID(at time.Time, n int) string {
	space := uuid.MustParse("9e952958-5e33-4daf-827f-2fa12937b875")
	return uuid.NewSHA1(space, fmt.Appendf(nil, "abc_%s_%d", at.UTC().Format("2006-01-02T15:04:05.0000000Z"), n)).String()
}

// An execution may have started with origins as request IDs, instead of the IDs of .NET. It
// keeps these IDs, and its GUIDs count only GUIDs.
func TestEntities_AnExecutionThatUsesOriginsAsIDsContinuesToDoSo(t *testing.T) {
	t.Parallel()
	var guids []string
	code := func(x *replay.Execution, _ *string) (*string, error) {
		x.SignalEntity(counter("a"), "add", nil, time.Time{})
		x.CountChild()
		guids = append(guids, x.NewGUID().String())
		return callEntity(x, "a", "get")
	}
	before := replaytest.New(t, "O", code)
	before.Compare = false
	first := requests(t, before.Start(nil))
	for i, e := range before.History { // as a worker that uses origins as IDs recorded it
		if e, ok := e.(*history.EventSent); ok {
			r := *first[e.EventID]
			r.ID, r.Origin = r.Origin, ""
			e.Input = new(r.Encode())
			before.History[i] = e
		}
	}
	x := replay.New(before.Instance, code)
	defer x.Close()
	answered := replaytest.Raised(first[1].Origin, `{"result":"7"}`)
	out := x.Episode(before.History, []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(before.Now)}, answered})
	if end, ok := out.Actions[0].(*replay.Complete); !ok || end.Status != history.Completed || *end.Result != "7" {
		t.Errorf("decided\n%s", replaytest.Describe(out.Actions))
	}
	if guids[1] != dotnetGUID(before.Now, 0) {
		t.Errorf("the GUID is %s, want the first one, %s", guids[1], dotnetGUID(before.Now, 0))
	}
}

// If the first ID of an execution belongs to a child, its history does not show which program
// started it. NewGUID then returns the GUIDs that both programs create. A request still has the
// ID of .NET.
func TestEntities_GUIDsDoNotCountChildrenIfAChildIsFirst(t *testing.T) {
	t.Parallel()
	var got string
	s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
		x.CountChild()
		x.CreateSubOrchestration(new(replay.Future), "C", "", nil)
		got = x.NewGUID().String()
		x.SignalEntity(counter("a"), "add", nil, time.Time{})
		return nil, nil
	})
	sent := requests(t, s.Start(nil))
	if want := dotnetGUID(s.Now, 0); got != want {
		t.Errorf("the GUID is %s, want the first, %s", got, want)
	}
	if want := dotnetGUID(s.Now, 2); sent[0].ID != want {
		t.Errorf("the request is %s, want %s", sent[0].ID, want)
	}
}

// callAfterGo calls an entity after the event "go" has arrived.
func callAfterGo(x *replay.Execution, _ *string) (*string, error) {
	var f replay.Future
	x.WaitEvent(&f, "go")
	f.Await()
	return callEntity(x, "a", "get")
}

// An attempt of an episode is lost after it sent a call. The answer to it answers the recorded
// call. .NET needs the answer under the ID of the recorded call, too.
func TestEntities_AnAnswerToALostAttemptAnswersTheCall(t *testing.T) {
	t.Parallel()
	attempt := func(later time.Duration) (*replaytest.Stage, *entity.Request) {
		s := replaytest.New(t, "O", callAfterGo)
		s.Compare = false // a replay needs no aliases
		s.Start(nil)
		s.Now = s.Now.Add(later)
		return s, requests(t, s.Episode(replaytest.Raised("go", "")))[0]
	}
	_, lost := attempt(0)
	answered := replaytest.Raised(lost.ID, entity.Response{Result: new("7"), Origin: lost.Origin}.Encode())

	s, sent := attempt(time.Minute)
	if sent.ID == lost.ID {
		t.Fatal("both attempts have the same ID")
	}
	s.Episode(answered)
	if got := s.Output(history.Completed); got != "7" {
		t.Errorf("the call returned %s, want 7", got)
	}
	if diff := cmp.Diff([]replay.Alias{{Answer: answered, Name: sent.ID}}, s.Outcome.Aliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}

	early := replaytest.New(t, "O", callAfterGo)
	early.Compare = false
	early.Start(nil)
	early.Now = early.Now.Add(time.Minute)
	early.Episode(answered)
	sent = requests(t, early.Episode(replaytest.Raised("go", "")))[0]
	if got := early.Output(history.Completed); got != "7" {
		t.Errorf("the call made after its answer arrived returned %s, want 7", got)
	}
	if diff := cmp.Diff([]replay.Alias{{Answer: answered, Name: sent.ID}}, early.Outcome.Aliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
}

// Another program made the recorded request. The execution uses its ID and label.
func TestEntities_RecordedIDsAndLabelsReplaceNewOnes(t *testing.T) {
	t.Parallel()
	code := func(x *replay.Execution, _ *string) (*string, error) {
		defer x.Unlock()
		lock(x, "a")
		return callEntity(x, "a", "get")
	}
	head := history.NewHeader(replaytest.Epoch)
	past := []history.Event{
		&history.OrchestratorStarted{Header: head},
		&history.ExecutionStarted{Header: head, Name: "O", Instance: history.OrchestrationInstance{InstanceID: "abc", ExecutionID: "e0"}},
		&history.EventSent{Header: history.Header{EventID: 0}, InstanceID: "@counter@a", Name: "op", Input: new(
			`{"op":null,"id":"33333333-3333-3333-3333-333333333333","parent":"abc","Timestamp":"2026-11-20T18:34:39.1752517Z",` +
				`"Predecessor":"0001-01-01T00:00:00","lockset":[{"name":"counter","key":"a"}]}`)},
		&history.OrchestratorCompleted{Header: head},
	}
	x := replay.New(history.OrchestrationInstance{InstanceID: "abc", ExecutionID: "e0"}, code)
	defer x.Close()
	start := &history.OrchestratorStarted{Header: head}
	out := x.Episode(past, []history.Event{start, replaytest.Raised("33333333-3333-3333-3333-333333333333", `{"result":"Lock Acquisition Completed"}`)})
	sent := requests(t, out.Actions)
	if len(sent) != 1 {
		t.Fatalf("the lock was not granted: %s", replaytest.Describe(out.Actions))
	}
	if want := time.Date(2026, 11, 20, 18, 34, 39, 175251700, time.UTC); !sent[0].Predecessor.Equal(want) {
		t.Errorf("the next request follows %v, want %v", sent[0].Predecessor, want)
	}
	out = x.Episode(nil, []history.Event{start, answer(sent[0], "1")})
	var texts []string
	for _, a := range out.Actions {
		if a, ok := a.(*replay.SendEvent); ok {
			texts = append(texts, *a.Input)
		}
	}
	if want := []string{`{"parent":"abc","id":"33333333-3333-3333-3333-333333333333"}`}; !slices.Equal(texts, want) {
		t.Errorf("sent %v, want %v", texts, want)
	}
}

// The checkpoint of a call is lost after the call was sent, so the answer arrives first.
func TestEntities_AnAnswerMayComeBeforeItsCall(t *testing.T) {
	t.Parallel()
	first := replaytest.New(t, "O", callAfterGo)
	first.Start(nil)
	sent := requests(t, first.Episode(replaytest.Raised("go", "")))
	second := replaytest.New(t, "O", callAfterGo)
	second.Start(nil)
	second.Episode(answer(sent[0], "7"))
	second.Episode(replaytest.Raised("go", ""))
	if got := second.Output(history.Completed); got != "7" {
		t.Errorf("the call returned %s, want 7", got)
	}
}

func TestEntities_ADuplicateAnswerIsNotCarriedOver(t *testing.T) {
	t.Parallel()
	s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
		if _, err := callEntity(x, "a", "get"); err != nil {
			return nil, err
		}
		return nil, x.ContinueAsNew(nil)
	})
	sent := requests(t, s.Start(nil))
	s.Episode(answer(sent[0], "1"), answer(sent[0], "1"))
	if n := len(s.End().CarryOver); n != 0 {
		t.Errorf("%d events are carried over, want none", n)
	}
}

func TestCriticalSection_Rules(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		code func(x *replay.Execution)
		want string
	}{
		{"a sub-orchestration", func(x *replay.Execution) { x.CreateSubOrchestration(new(replay.Future), "C", "", nil) }, "cannot call suborchestrators"},
		{"a sub-orchestration that is not awaited", func(x *replay.Execution) { x.StartOrchestration(&replay.CreateSubOrchestration{Name: "C"}) }, "cannot call suborchestrators"},
		{"a signal to a locked entity", func(x *replay.Execution) { x.SignalEntity(counter("a"), "add", nil, time.Time{}) }, "Must not signal a locked entity from a critical section"},
		{"a second call to a locked entity", func(x *replay.Execution) {
			x.CallEntity(new(replay.Future), counter("a"), "get", nil)
			x.CallEntity(new(replay.Future), counter("a"), "get", nil)
		}, "while a prior call to the same entity is still pending"},
		{"a call to an entity that is not locked", func(x *replay.Execution) { x.CallEntity(new(replay.Future), counter("z"), "get", nil) }, "not one of the locked entities"},
		{"another section", func(x *replay.Execution) { x.LockEntities(new(replay.Future), []entity.ID{counter("z")}) }, "Must not enter another critical section"},
		{"permitted calls", func(x *replay.Execution) {
			x.SignalEntity(counter("z"), "add", nil, time.Time{})
			x.CallEntity(new(replay.Future), counter("a"), "get", nil)
			x.CallEntity(new(replay.Future), counter("b"), "get", nil)
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
				lock(x, "b", "a", "b")
				test.code(x)
				return nil, nil
			})
			sent := requests(t, s.Start(nil))
			if diff := cmp.Diff([]entity.ID{counter("a"), counter("b")}, sent[0].LockSet); diff != "" {
				t.Errorf("locks (-want +got):\n%s", diff)
			}
			actions := s.Episode(answer(sent[0], "Lock Acquisition Completed"))
			end := s.End()
			if test.want == "" && end.Status != history.Completed {
				t.Errorf("the execution failed with %s", *end.Result)
			}
			if test.want != "" && (end.Status != history.Failed || !strings.Contains(*end.Result, test.want)) {
				t.Errorf("the execution is %v with %v, want a failure with %q", end.Status, end.Result, test.want)
			}
			if diff := cmp.Diff([]string{"@counter@a", "@counter@b"}, released(actions)); diff != "" {
				t.Errorf("releases (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCriticalSection_NoEntityIsCalledBeforeItIsLocked(t *testing.T) {
	t.Parallel()
	s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
		x.LockEntities(new(replay.Future), []entity.ID{counter("a")})
		return callEntity(x, "a", "get")
	})
	actions := s.Start(nil)
	if got := s.Output(history.Failed); !strings.Contains(got, "Must await the completion of the lock request") {
		t.Errorf("the execution failed with %s", got)
	}
	if got := released(actions); len(got) != 1 {
		t.Errorf("released %v, want the requested lock", got)
	}
}

// A history that does not match the code fails the execution. The locks that the history
// acquired are still released.
func TestCriticalSection_ADivergingExecutionReleasesRecordedLocks(t *testing.T) {
	t.Parallel()
	section := func(then string) replay.Code {
		return func(x *replay.Execution, _ *string) (*string, error) {
			lock(x, "a", "b")
			var f replay.Future
			x.ScheduleTask(&f, then, nil)
			f.Await()
			x.Unlock()
			return nil, nil
		}
	}
	before := replaytest.New(t, "O", section("A"))
	sent := requests(t, before.Start(nil))
	before.Episode(answer(sent[0], "Lock Acquisition Completed"))
	past := slices.Clone(before.History)
	for _, e := range past { // Record leaves the inputs out
		if e, ok := e.(*history.EventSent); ok {
			e.Input = new(sent[0].Encode())
		}
	}
	x := replay.New(before.Instance, section("B"))
	defer x.Close()
	out := x.Episode(past, []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(before.Now)}, replaytest.Done(1, "1")})
	end, ok := out.Actions[len(out.Actions)-1].(*replay.Complete)
	if !ok || end.Status != history.Failed {
		t.Fatalf("decided\n%s", replaytest.Describe(out.Actions))
	}
	if diff := cmp.Diff([]string{"@counter@a", "@counter@b"}, released(out.Actions)); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
	for i, a := range out.Actions {
		if a.ActionID() != 2+i {
			t.Errorf("action %d has number %d, want %d", i, a.ActionID(), 2+i)
		}
	}
}

// The four events of a test arrive in every order and with every division into episodes. A
// termination follows.
func TestCriticalSection_EveryEndReleasesTheLocksOnce(t *testing.T) {
	t.Parallel()
	code := func(x *replay.Execution, _ *string) (*string, error) {
		lock(x, "a")
		for range 2 {
			var f replay.Future
			x.WaitEvent(&f, "go")
			f.Await()
			x.Unlock()
		}
		return nil, nil
	}
	head := history.NewHeader(replaytest.Epoch)
	for order := range 4 * 4 * 4 * 4 {
		for division := range 2 * 2 * 2 * 2 {
			s := replaytest.New(t, "O", code)
			sent := requests(t, s.Start(nil))
			events := []history.Event{
				answer(sent[0], "Lock Acquisition Completed"), replaytest.Raised("go", ""),
				&history.ExecutionSuspended{Header: head}, &history.ExecutionResumed{Header: head},
			}
			var episode []history.Event
			var arrived string
			for i := range 4 {
				e := events[order>>(2*i)&3]
				episode = append(episode, e)
				arrived += e.Type().String() + " "
				if division>>i&1 == 1 && s.End() == nil {
					s.Episode(episode...)
					episode = nil
					arrived += "| "
				}
			}
			if s.End() == nil {
				s.Episode(append(episode, &history.ExecutionTerminated{Header: head})...)
			}
			if got := fmt.Sprint(released(s.Actions)); s.End() == nil || got != "[@counter@a]" {
				t.Fatalf("after %sExecutionTerminated, %s is released and the end is %+v; want [@counter@a] and an end", arrived, got, s.End())
			}
		}
	}
}
