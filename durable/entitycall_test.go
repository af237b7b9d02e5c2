package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

const meter = durable.EntityKey[counter]("Meter 7")

// withCounters returns a stage for an orchestrator that uses counters.
func withCounters[I, O any](t testing.TB, orch func(*durable.Context, I) (O, error)) *replaytest.Stage {
	t.Helper()
	return stageOf(t, authors(durable.Orchestrator("Main", orch), counters(), durable.ErrorValue("Negative", errNegative)))
}

// sent returns descriptions of the messages sent to entities, and the requests.
func sent(t *testing.T, actions []replay.Action) (words []string, requests []*entity.Request) {
	t.Helper()
	for _, a := range actions {
		e, ok := a.(*replay.SendEvent)
		if !ok || e.InstanceID[0] != '@' {
			continue
		}
		if entity.IsRelease(e.Name) {
			words = append(words, "release "+e.InstanceID)
			continue
		}
		r, err := entity.DecodeRequest(e.Input)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
		switch {
		case r.IsLock():
			words = append(words, fmt.Sprintf("lock %v by %s", r.LockSet, e.InstanceID))
		case r.Signal:
			words = append(words, fmt.Sprintf("signal %s %s(%s) by %s", e.InstanceID, r.Operation, shown(r.Input), e.Name))
		default:
			words = append(words, fmt.Sprintf("call %s %s(%s)", e.InstanceID, r.Operation, shown(r.Input)))
		}
	}
	return words, requests
}

// wantSent compares the messages sent to entities and returns the requests.
func wantSent(t *testing.T, actions []replay.Action, want ...string) []*entity.Request {
	t.Helper()
	words, requests := sent(t, actions)
	if diff := cmp.Diff(words, want); diff != "" {
		t.Fatalf("sent to entities (-got +want):\n%s", diff)
	}
	return requests
}

// answerTo returns the response to a request with a result.
func answerTo(r *entity.Request, result string) history.Event {
	return raised(r.ID, entity.Response{Result: &result}.Encode())
}

// refuse returns the response to a request with a failure.
func refuse(r *entity.Request, f history.FailureDetails) history.Event {
	return raised(r.ID, entity.Response{Failure: &f}.Encode())
}

func TestCallEntity_ReturnsTheResultOfTheOperation(t *testing.T) {
	t.Parallel()
	s := withCounters(t, func(ctx *durable.Context, n int64) (int64, error) {
		return durable.CallEntity(ctx, meter, (*counter).Add, n).Await()
	})
	calls := wantSent(t, s.Start(5), "call @counter@Meter 7 add(5)")
	s.Episode(answerTo(calls[0], "12"))
	wantOutput(t, s, "12")
}

func TestCallEntity_FailsLikeAnActivity(t *testing.T) {
	t.Parallel()
	s := withCounters(t, func(ctx *durable.Context, n int64) (string, error) {
		_, err := durable.CallEntity(ctx, meter, (*counter).Add, n).Await()
		var e *durable.TaskFailedError
		if !errors.As(err, &e) {
			return "", fmt.Errorf("%T is not a TaskFailedError", err)
		}
		return fmt.Sprintf("%s|%s|%s|%s|%t", err, e.Name, e.Entity, e.Type, errors.Is(err, errNegative)), nil
	})
	calls := wantSent(t, s.Start(-5), "call @counter@Meter 7 add(-5)")
	s.Episode(refuse(calls[0], history.FailureDetails{ErrorType: "Negative", ErrorMessage: "would go negative"}))
	wantOutput(t, s, `"Operation 'add' of entity '@counter@Meter 7' failed: would go negative|add|@counter@Meter 7|Negative|true"`)
}

func TestCallEntity_FailsForAnUnknownOperation(t *testing.T) {
	t.Parallel()
	sub := durable.EntityOperation[int, int]("sub")
	s := withCounters(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := sub.Call(ctx, meter, 1).Await()
		var e *durable.OperationNotFoundError
		if !errors.As(err, &e) {
			return "", err
		}
		return e.Operation, nil
	})
	calls := wantSent(t, s.Start(nil), "call @counter@Meter 7 sub(1)")
	code, _ := durable.EngineOf(durable.NewRegistry(counters())).Entity("counter")
	r := code(t.Context(), &entity.Operation{Entity: entity.ID{Name: "counter"}, Name: "sub", Input: new("1")})
	s.Episode(refuse(calls[0], *r.Failure))
	wantOutput(t, s, `"sub"`)
}

func TestCallEntity_WorksWithAwaitAnyAndAwaitAll(t *testing.T) {
	t.Parallel()
	s := withCounters(t, func(ctx *durable.Context, _ durable.Void) ([]int64, error) {
		var tasks []*durable.Task[int64]
		for i := range int64(3) {
			tasks = append(tasks, durable.CallEntity(ctx, durable.EntityKey[counter](fmt.Sprint(i)), (*counter).Add, i))
		}
		first := durable.AwaitAny(ctx, tasks[0], tasks[1], tasks[2])
		all, err := durable.AwaitAll(ctx, tasks...)
		for i, task := range tasks {
			if first == durable.Awaitable(task) {
				all = append(all, int64(-i))
			}
		}
		return all, err
	})
	calls := wantSent(t, s.Start(nil), "call @counter@0 add(0)", "call @counter@1 add(1)", "call @counter@2 add(2)")
	s.Episode(answerTo(calls[2], "22"))
	s.Episode(answerTo(calls[0], "20"))
	s.Episode(answerTo(calls[1], "21"))
	wantOutput(t, s, "[20,21,22,-2]")
}

func TestCallEntity_RejectsInvalidCalls(t *testing.T) {
	t.Parallel()
	plain := func(*counter, *durable.EntityContext, int64) (int64, error) { return 0, nil }
	var none func(*counter, *durable.EntityContext, int64) (int64, error)
	for name, c := range map[string]struct {
		call func(ctx *durable.Context) error
		want string
	}{
		"an entity that is not registered": {func(ctx *durable.Context) error {
			_, err := durable.CallEntity(ctx, durable.EntityKey[teller]("x"), (*teller).Tell, durable.Void{}).Await()
			return err
		}, "no entity has durable_test.teller as its state"},
		"an operation that is not registered": {func(ctx *durable.Context) error {
			_, err := durable.CallEntity(ctx, meter, plain, 1).Await()
			return err
		}, "is not an operation of entity \"counter\""},
		"a nil operation": {func(ctx *durable.Context) error {
			_, err := durable.CallEntity(ctx, meter, none, 1).Await()
			return err
		}, "is a nil func"},
		"a key with a slash": {func(ctx *durable.Context) error {
			_, err := durable.CallEntity(ctx, durable.EntityKey[counter]("a/b"), (*counter).Add, 1).Await()
			return err
		}, "must not contain /"},
		"a key that is too long": {func(ctx *durable.Context) error {
			_, err := durable.CallEntity(ctx, durable.EntityKey[counter](strings.Repeat("x", 300)), (*counter).Add, 1).Await()
			return err
		}, "must not exceed 256"},
		"an ID without a name": {func(ctx *durable.Context) error {
			_, err := durable.EntityOperation[int, int]("add").Call(ctx, durable.EntityID{Key: "x"}, 1).Await()
			return err
		}, "names must not be empty"},
		"an input that cannot be encoded": {func(ctx *durable.Context) error {
			_, err := durable.EntityOperation[chan int, int]("add").Call(ctx, meter, nil).Await()
			return err
		}, "encode input of operation add of @counter@Meter 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withCounters(t, func(ctx *durable.Context, _ durable.Void) (durable.Void, error) { return durable.Void{}, c.call(ctx) })
			wantSent(t, s.Start(nil))
			wantFailure(t, s, c.want)
		})
	}
}

func TestSignalFrom_SendsImmediatelyOrLater(t *testing.T) {
	t.Parallel()
	s := withCounters(t, func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		durable.SignalFrom(ctx, meter, (*counter).Add, 1)
		durable.SignalFrom(ctx, meter, (*counter).Add, 2, durable.SignalAfter(time.Minute))
		durable.SignalFrom(ctx, meter, (*counter).Add, 3, durable.SignalAt(ctx.Now().Add(-time.Minute)))
		durable.EntityOperation[int, int]("Take").SignalFrom(ctx, durable.EntityID{Name: "Other", Key: "K"}, 4, durable.SignalAt(ctx.Now().Add(time.Hour)))
		return durable.Void{}, nil
	})
	signals := wantSent(t, s.Start(nil),
		"signal @counter@Meter 7 add(1) by op",
		"signal @counter@Meter 7 add(2) by op@2024-10-01T12:01:00.1234567Z",
		"signal @counter@Meter 7 add(3) by op",
		"signal @other@K Take(4) by op@2024-10-01T13:00:00.1234567Z",
	)
	if due := signals[1].Due; !due.Equal(replaytest.Epoch.Add(time.Minute)) {
		t.Errorf("due at %v, want a minute after the start", due)
	}
	wantOutput(t, s, "<nil>")
}

func TestSignalFrom_InvalidSignalFailsTheOrchestration(t *testing.T) {
	t.Parallel()
	s := withCounters(t, func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		durable.SignalFrom(ctx, durable.EntityKey[counter]("a#b"), (*counter).Add, 1)
		return durable.Void{}, nil
	})
	wantSent(t, s.Start(nil))
	wantFailure(t, s, "SignalFrom: Instance IDs must not contain")
}
