package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func (f functions) Entity(name string) (dispatch.EntityCode, bool) {
	code, ok := f.entities[name]
	return code, ok
}

func entityID(name, key string) entity.ID {
	id, err := entity.NewID(name, key)
	if err != nil {
		panic(err)
	}
	return id
}

func counterID(key string) entity.ID { return entityID("counter", key) }

// counter is an entity with a number.
func counter(_ context.Context, op *entity.Operation) entity.Result {
	n := decode[int](op.State)
	r := entity.Result{State: op.State}
	switch op.Name {
	case "add":
		n += decode[int](op.Input)
		r.State, r.Output = encode(n), encode(n)
	case "get":
		r.Output = encode(n)
	case "delete":
		r.State = nil
	case "fail":
		r.State = encode(-1)
		r.Actions = []entity.Action{&entity.Signal{Target: counterID("other"), Operation: "add", Input: encode(1)}}
		r.Failure = &history.FailureDetails{ErrorType: "MyErr", ErrorMessage: "op failed"}
	case "panic":
		panic("oh")
	case "goexit":
		runtime.Goexit()
	case "tell":
		r.Actions = []entity.Action{
			&entity.Signal{Target: counterID("other"), Operation: "add", Input: encode(1)},
			&entity.Start{Name: "Echo", InstanceID: "echo " + op.RequestID, Input: op.Input},
			&entity.Signal{Target: counterID("later"), Operation: "add", Input: encode(1), Due: op.Now.Add(9 * 24 * time.Hour)},
		}
	}
	return r
}

func callEntity(x *replay.Execution, target entity.ID, op string, input any) (*string, error) {
	f := new(replay.Future)
	x.CallEntity(f, target, op, encode(input))
	f.Await()
	r, err := f.EntityResponse()
	if err != nil {
		return nil, err
	}
	if r.Failure != nil {
		return nil, errors.New(r.Failure.String())
	}
	return r.Result, nil
}

func lockEntities(x *replay.Execution, ids ...entity.ID) {
	f := new(replay.Future)
	x.LockEntities(f, ids)
	f.Await()
}

var entityFunctions = functions{
	entities: map[string]dispatch.EntityCode{"counter": counter},
	orchestrators: map[string]replay.Code{
		"Echo": func(_ *replay.Execution, input *string) (*string, error) { return input, nil },
		"Call": func(x *replay.Execution, input *string) (*string, error) {
			op, in, _ := strings.Cut(decode[string](input), " ")
			r, err := callEntity(x, counterID("a"), op, nil)
			if in != "" {
				r, err = callEntity(x, counterID("a"), op, len(in))
			}
			return r, err
		},
	},
}

// signal signals a counter as a client does.
func (b *bench) signal(id entity.ID, op string, input any, due time.Time) {
	b.Helper()
	requestID := entity.DeriveID(id.String(), fmt.Sprint(b.ids.Add(1)))
	name, text := entity.NewSignal(requestID, op, encode(input), due, time.Now())
	b.send(id.String(), &history.EventRaised{Name: name, Input: &text})
}

// entityState returns an entity's state, "<nil>" if it does not exist.
func (b *bench) entityState(id entity.ID) string {
	b.Helper()
	s, err := b.Instance(b.Context(), id.String(), provider.Fetch{Input: true})
	if errors.Is(err, provider.ErrInstanceNotFound) {
		return "<nil>"
	} else if err != nil {
		b.Fatal(err)
	}
	text, err := entity.StateText(s.Input)
	if err != nil {
		b.Fatal(err)
	}
	if text == nil {
		return "<nil>"
	}
	return *text
}

func (b *bench) wantState(id entity.ID, want string) {
	b.Helper()
	if got := b.entityState(id); got != want {
		b.Errorf("the state of %s is %s, want %s\nlog:\n%s", id, got, want, b.log)
	}
}

func TestEntity_IsSignalledCalledAndStoredAsARunningInstance(t *testing.T) {
	for _, way := range bothWays {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.work(entityFunctions, way.change)
				b.signal(counterID("a"), "add", 7, time.Time{})
				time.Sleep(time.Minute)
				b.wantState(counterID("a"), "7")
				b.start("i", "Call", "add 123")
				b.wantOutput("i", history.Completed, "10")
				s := b.state("@counter@a")
				if s.Status != history.Running || s.Name != "@counter@a" || s.Version != "" || *s.CustomStatus != `{"entityExists":true}` {
					t.Errorf("the row is %+v with status %s", s, *s.CustomStatus)
				}
				if got, want := b.types("@counter@a"), "OrchestratorStarted ExecutionStarted OrchestratorCompleted"; got != want {
					t.Errorf("the history is %s, want %s", got, want)
				}
				b.signal(counterID("a"), "delete", nil, time.Time{})
				time.Sleep(time.Minute)
				if s := b.state("@counter@a"); *s.CustomStatus != `{}` {
					t.Errorf("the status of a deleted entity is %s", *s.CustomStatus)
				}
				b.wantNothingLeft()
			})
		})
	}
}

func TestEntity_FailuresReachTheCallerAndAreRolledBack(t *testing.T) {
	for _, test := range []struct{ op, want string }{
		{"fail", "MyErr: op failed"},
		{"panic", "panic: oh"},
		{"goexit", "runtime.Goexit instead of returning"},
	} {
		t.Run(test.op, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.work(entityFunctions)
				b.signal(counterID("a"), "add", 7, time.Time{})
				time.Sleep(time.Minute)
				b.start("i", "Call", test.op)
				if s := b.end("i"); s.Status != history.Failed || !strings.Contains(*s.Output, test.want) {
					t.Errorf("the caller is %v with %s, want a failure with %s", s.Status, *s.Output, test.want)
				}
				b.wantState(counterID("a"), "7")
				b.wantState(counterID("other"), "<nil>")
				b.wantNothingLeft()
			})
		})
	}
}

func TestEntity_RunsTheRestOfItsBatchAfterAnOperationCalledGoexit(t *testing.T) {
	bubble(t, func(b *bench) {
		for _, n := range []int{1, 0, 2, 0, 0, 4} {
			op := "add"
			if n == 0 {
				op = "goexit"
			}
			b.signal(counterID("a"), op, n, time.Time{})
		}
		b.start("i", "Call", "add 12345678")
		b.work(entityFunctions)
		b.wantOutput("i", history.Completed, "15")
		b.wantState(counterID("a"), "15")
		if n := b.log.count("entity operation failed"); n != 3 {
			t.Errorf("%d operations failed, want 3:\n%s", n, b.log)
		}
		b.wantNothingLeft()
	})
}

func TestEntity_KeepFailedEffectsKeepsTheEffectsOfFailedOperations(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(entityFunctions, func(c *dispatch.Config) { c.Entities.KeepFailedEffects = true })
		b.signal(counterID("a"), "fail", nil, time.Time{})
		time.Sleep(time.Minute)
		b.wantState(counterID("a"), "-1")
		b.wantState(counterID("other"), "1")
	})
}

func TestEntity_SendsSignalsAndStartsAlsoMoreThanAWeekAhead(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(entityFunctions)
		b.signal(counterID("a"), "tell", "hello", time.Now().Add(time.Hour))
		time.Sleep(59 * time.Minute)
		b.wantState(counterID("other"), "<nil>")
		time.Sleep(2 * time.Minute)
		b.wantState(counterID("other"), "1")
		page, err := b.Instances(t.Context(), provider.Query{IDPrefix: "echo"})
		if err != nil || len(page.Instances) != 1 {
			t.Fatalf("%d orchestrations were started, %v", len(page.Instances), err)
		}
		b.wantOutput(page.Instances[0].Instance.InstanceID, history.Completed, `"hello"`)
		time.Sleep(9*24*time.Hour - 10*time.Minute)
		b.wantState(counterID("later"), "<nil>")
		time.Sleep(20 * time.Minute)
		b.wantState(counterID("later"), "1")
		b.wantNothingLeft()
	})
}

func TestEntity_SplitsALargeBatchIntoSeveralCheckpoints(t *testing.T) {
	bubble(t, func(b *bench) {
		for range 21 { // two of eleven would do
			b.signal(counterID("a"), "add", 1, time.Time{})
		}
		b.work(entityFunctions, func(c *dispatch.Config) { c.Entities.MaxBatch = 10 })
		time.Sleep(time.Minute)
		b.wantState(counterID("a"), "21")
		if n := len(b.Commits()); n != 3 {
			t.Errorf("there were %d checkpoints, want 3", n)
		}
		b.wantNothingLeft()
	})
}

func TestEntity_AnUnknownEntityIsHeldBack(t *testing.T) {
	bubble(t, func(b *bench) {
		stop := b.work(functions{})
		b.signal(counterID("a"), "add", 1, time.Time{})
		time.Sleep(time.Minute)
		if b.log.count("entity is held back") == 0 || b.log.count("entity is held back") > 10 {
			t.Errorf("the entity is not held back with growing delays:\n%s", b.log)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.work(entityFunctions)
		time.Sleep(time.Hour)
		b.wantState(counterID("a"), "1")
	})
}

func TestEntity_MessagesToAnInvalidEntityIDAreDiscarded(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(entityFunctions)
		b.send("@nobody", &history.EventRaised{Name: "op", Input: new("{}")})
		b.wantNothingLeft()
		if b.log.count("discarded messages to an invalid entity ID") != 1 {
			t.Errorf("the message was not logged once:\n%s", b.log)
		}
	})
}

// A worker that does not know whether an old outbox was sent does not send it again: receivers
// would not recognize duplicates.
func TestEntity_OldMessagesAreNotSentAgain(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		again bool
	}{{time.Minute, true}, {time.Hour, false}} {
		bubble(t, func(b *bench) {
			stop := b.work(entityFunctions)
			b.signal(counterID("a"), "tell", "hello", time.Time{})
			time.Sleep(time.Second)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(test.after)
			b.workOn(b.NewWorker(), entityFunctions)
			before := len(b.Commits())
			b.signal(counterID("a"), "get", nil, time.Time{})
			time.Sleep(time.Second)
			sent := 0
			for _, c := range b.Commits()[before:] {
				sent += len(c.Checkpoint.Messages)
			}
			if (sent > 0) != test.again {
				t.Errorf("%d messages were sent again after %v", sent, test.after)
			}
			b.wantState(counterID("other"), "1")
		})
	}
}

func TestEntity_MaxConcurrentIsKept(t *testing.T) {
	bubble(t, func(b *bench) {
		var now, most atomic.Int64
		slow := func(context.Context, *entity.Operation) entity.Result {
			n := now.Add(1)
			most.Store(max(most.Load(), n))
			time.Sleep(time.Second)
			now.Add(-1)
			return entity.Result{}
		}
		for n := range 20 {
			b.signal(entityID("slow", fmt.Sprint(n)), "go", nil, time.Time{})
		}
		b.work(functions{entities: map[string]dispatch.EntityCode{"slow": slow}, orchestrators: helloFunctions.orchestrators, activities: helloFunctions.activities},
			func(c *dispatch.Config) { c.Entities.MaxConcurrent = 3 })
		time.Sleep(time.Minute)
		if most.Load() != 3 {
			t.Errorf("%d entities ran at once, want 3", most.Load())
		}
		b.wantNothingLeft()
	})
}

// Far more entities than slots run one after another, in several rounds. The harness checks that no slot
// and no waiting entity is left.
func TestEntity_MoreEntitiesThanSlotsLeaveNothingBehind(t *testing.T) {
	bubble(t, func(b *bench) {
		slow := func(ctx context.Context, op *entity.Operation) entity.Result {
			time.Sleep(time.Second)
			return counter(ctx, op)
		}
		b.work(functions{entities: map[string]dispatch.EntityCode{"counter": slow}}, extendedSessions,
			func(c *dispatch.Config) { c.Entities.MaxConcurrent, c.MaxConcurrentOrchestrators = 2, 3 })
		for round := range 3 {
			for n := range 12 {
				for range 3 {
					b.signal(counterID(fmt.Sprint(n)), "add", 1, time.Time{})
				}
			}
			time.Sleep(5 * time.Minute)
			for n := range 12 {
				b.wantState(counterID(fmt.Sprint(n)), fmt.Sprint(3*(round+1)))
			}
			b.wantNothingLeft()
		}
	})
}

func TestEntity_DefersTheRestOfItsBatchWhenTheWorkerStops(t *testing.T) {
	bubble(t, func(b *bench) {
		slow := func(_ context.Context, op *entity.Operation) entity.Result {
			time.Sleep(time.Second)
			return counter(t.Context(), op)
		}
		fns := functions{entities: map[string]dispatch.EntityCode{"counter": slow}}
		for range 10 {
			b.signal(counterID("a"), "add", 1, time.Time{})
		}
		stop := b.work(fns)
		time.Sleep(2500 * time.Millisecond)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.wantState(counterID("a"), "3")
		b.workOn(b.NewWorker(), fns)
		time.Sleep(time.Minute)
		b.wantState(counterID("a"), "10")
	})
}

func TestEntity_CorruptStateIsKept(t *testing.T) {
	bubble(t, func(b *bench) {
		e := &history.ExecutionStarted{
			Header: history.NewHeader(time.Now()), Instance: history.OrchestrationInstance{InstanceID: "@counter@a", ExecutionID: "e"},
			Name: "@counter@a", Input: new("no JSON"),
		}
		b.startEvent(e)
		b.work(entityFunctions)
		time.Sleep(time.Minute)
		if b.log.count("decode the stored state of an entity") == 0 {
			t.Errorf("the error was not logged:\n%s", b.log)
		}
		if len(b.Commits()) != 0 {
			t.Error("the corrupt state was replaced")
		}
	})
}

var entityFaults = map[string]memhub.Fault{
	"commit fails": memhub.CommitFails, "commit tears": memhub.CommitTears, "commit's reply is lost": memhub.CommitReplyLost,
	"session is lost": memhub.SessionLost, "messages are delivered twice": memhub.DuplicateDelivery, "messages are delivered late": memhub.DelayedDelivery,
}

// Orchestrations run while entities wait for room.
func TestEntity_WaitingEntitiesHoldNoOrchestrationSlots(t *testing.T) {
	bubble(t, func(b *bench) {
		slow := func(ctx context.Context, _ *entity.Operation) entity.Result {
			<-ctx.Done()
			return entity.Result{}
		}
		for n := range 20 {
			b.signal(entityID("slow", fmt.Sprint(n)), "go", nil, time.Time{})
		}
		b.work(functions{entities: map[string]dispatch.EntityCode{"slow": slow}, orchestrators: helloFunctions.orchestrators, activities: helloFunctions.activities},
			func(c *dispatch.Config) { c.Entities.MaxConcurrent, c.MaxConcurrentOrchestrators = 1, 2 })
		time.Sleep(time.Minute)
		b.start("i", "HelloSeq", nil)
		b.wantOutput("i", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
	})
}

// Other entities run while the sessions of entities wait for more messages.
func TestEntity_ExtendedSessionsHoldNoSlotsWhileTheyWait(t *testing.T) {
	bubble(t, func(b *bench) {
		for n := range 100 {
			b.signal(counterID(fmt.Sprint(n)), "add", 1, time.Time{})
		}
		b.work(entityFunctions, extendedSessions, func(c *dispatch.Config) { c.Entities.MaxConcurrent = 4 })
		time.Sleep(time.Second)
		for n := range 100 {
			b.wantState(counterID(fmt.Sprint(n)), "1")
			b.signal(counterID(fmt.Sprint(n)), "add", 1, time.Time{})
		}
		time.Sleep(time.Second)
		for n := range 100 {
			b.wantState(counterID(fmt.Sprint(n)), "2")
		}
	})
}
