package durable_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// random is an orchestrator that is generated from a seed. Its branches call activities
// and children, retry, sleep, send and await events, race and join.
func random(ctx *durable.Context, seed uint64) ([]string, error) {
	p := &program{ctx: ctx, rng: rand.New(rand.NewPCG(seed, 1))}
	err := p.steps(4+p.rng.IntN(5), 0)
	if err != nil {
		return nil, err
	}
	switch p.rng.IntN(8) {
	case 0:
		_, err := durable.ContinueAsNew(ctx, random, seed+1)
		return nil, err
	case 1:
		panic("at the end")
	case 2:
		return nil, errDeclined
	}
	return p.log, nil
}

type program struct {
	ctx *durable.Context
	rng *rand.Rand
	log []string
}

func (p *program) logf(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *program) event() durable.Event[string] {
	return durable.Event[string]([]string{"A", "b", "C"}[p.rng.IntN(3)])
}

// start starts a random task.
func (p *program) start(depth int) *durable.Task[string] {
	retry := durable.RetryPolicy{MaxAttempts: 1 + p.rng.IntN(3), FirstInterval: time.Hour, Handle: func(error) bool { return p.rng.IntN(4) > 0 }}
	switch n := p.rng.IntN(13); {
	case n < 3:
		return durable.CallActivity(p.ctx, sayHello, fmt.Sprint("activity ", p.rng.IntN(100)))
	case n == 9:
		return durable.CallActivity(p.ctx, sayHello, "tried", retry)
	case n == 10:
		return durable.CallSubOrchestrator(p.ctx, greet, "child")
	case n == 11:
		return durable.CallSubOrchestrator(p.ctx, greet, "child, tried", retry)
	case n == 12:
		err := p.event().RaiseFrom(p.ctx, "other", "word")
		return durable.Go(p.ctx, func() (string, error) { return "sent", err })
	case n < 5:
		return p.event().Wait(p.ctx)
	case n < 6 && depth < 2:
		name := fmt.Sprint("branch ", p.rng.IntN(100))
		return durable.Go(p.ctx, func() (string, error) {
			p.logf("%s begins", name)
			err := p.steps(1+p.rng.IntN(3), depth+1)
			p.logf("%s ends", name)
			return name, err
		})
	default:
		d := time.Duration(p.rng.IntN(6*24)) * time.Hour
		return durable.Go(p.ctx, func() (string, error) {
			at, err := p.ctx.Timer(d).Await()
			return at.Format(time.DateTime), err
		})
	}
}

func (p *program) steps(n, depth int) error {
	for range n {
		if err := p.step(depth); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) step(depth int) error {
	var tasks []*durable.Task[string]
	for range 1 + p.rng.IntN(3) {
		tasks = append(tasks, p.start(depth))
	}
	switch p.rng.IntN(7) {
	case 0:
		v, err := durable.AwaitAll(p.ctx, tasks...)
		p.logf("all %v, %v", v, err)
	case 1, 2:
		var any []durable.Awaitable
		for _, t := range tasks {
			any = append(any, t)
		}
		won := durable.AwaitAny(p.ctx, any...)
		i := slices.Index(any, won)
		v, err := tasks[i].Await()
		p.logf("any %d %v, %v", i, v, err)
	case 3:
		left := p.rng.IntN(3)
		for t := range durable.AsCompleted(p.ctx, tasks...) {
			v, err := t.Await()
			p.logf("completed %v, %v", v, err)
			if left--; left < 0 {
				break
			}
		}
	case 4:
		v, err := tasks[0].AwaitTimeout(time.Duration(p.rng.IntN(100)) * time.Hour)
		if err != nil && !errors.Is(err, durable.ErrTimeout) {
			if _, ok := errors.AsType[*durable.TaskFailedError](err); !ok {
				return err
			}
		}
		p.logf("within %v, %v", v, err)
	case 5:
		p.ctx.SetCustomStatus(len(p.log))
		p.logf("id %v", p.ctx.NewUUID())
	default:
		v, err := tasks[len(tasks)-1].Await()
		p.logf("last %v, %v", v, err)
	}
	return nil
}

// world generates the events of an instance.
type world struct {
	rng  *rand.Rand
	open []replay.Action
	seen []history.Event
}

// next returns the next event.
func (w *world) next(decided []replay.Action) history.Event {
	for _, a := range decided {
		switch a.(type) {
		case *replay.ScheduleTask, *replay.CreateTimer, *replay.CreateSubOrchestration:
			w.open = append(w.open, a)
		}
	}
	switch n := w.rng.IntN(20); {
	case n == 0 && len(w.seen) > 0:
		return w.seen[w.rng.IntN(len(w.seen))] // redelivered
	case n == 1:
		return &history.ExecutionSuspended{Header: history.NewHeader(replaytest.Epoch)}
	case n <= 4:
		return &history.ExecutionResumed{Header: history.NewHeader(replaytest.Epoch)}
	case n <= 10 || len(w.open) == 0:
		return raised([]string{"a", "B", "c"}[w.rng.IntN(3)], fmt.Sprintf("%q", fmt.Sprint("payload ", len(w.seen))))
	}
	i := w.rng.IntN(len(w.open))
	a := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	var e history.Event
	_, isChild := a.(*replay.CreateSubOrchestration)
	switch {
	case reflect.TypeOf(a) == reflect.TypeFor[*replay.CreateTimer]():
		e = fired(a.ActionID())
	case isChild && w.rng.IntN(2) == 0:
		e = childFailed(a.ActionID(), "no luck")
	case isChild:
		e = childDone(a.ActionID(), `"grown up"`)
	case w.rng.IntN(4) == 0:
		e = failed(a.ActionID(), "no luck")
	default:
		e = done(a.ActionID(), fmt.Sprintf("%q", fmt.Sprint("result ", a.ActionID())))
	}
	w.seen = append(w.seen, e)
	return e
}

// The decisions of an instance must not depend on how its events are split into
// episodes. They must also not depend on whether it stays in memory, is replayed for
// each episode, or is evicted at random.
func TestInstance_DecisionsDoNotDependOnHowEventsAreBatched(t *testing.T) {
	t.Parallel()
	seeds := testshare.Amount(120, 20)
	r := authors(durable.Orchestrator("Main", random), durable.Orchestrator("Greet", greet))
	ends := map[history.RuntimeStatus]int{}
	for seed := range uint64(seeds) {
		// One event per episode, always in memory. The stage compares each episode with a
		// replay.
		base := stageOf(t, r)
		w := &world{rng: rand.New(rand.NewPCG(seed, 2))}
		var events []history.Event
		actions := base.Start(seed)
		for base.End() == nil && len(events) < 400 {
			e := w.next(actions)
			events = append(events, e)
			actions = base.Episode(e)
		}
		if base.End() != nil {
			ends[base.End().Status]++
		}
		for split := range 4 {
			rng := rand.New(rand.NewPCG(seed, uint64(10+split)))
			s := stageOf(t, r)
			s.Compare = false
			s.Cached = split%2 == 0
			for i, first := 0, true; i < len(events) || first; first = false {
				n := min(rng.IntN(2+5*split), len(events)-i)
				if first {
					s.Start(seed, events[:n]...)
				} else {
					s.Episode(events[i : i+n]...)
				}
				i += n
				if rng.IntN(10) == 0 {
					s.Evict()
				}
			}
			want, got := replaytest.Describe(base.Actions), replaytest.Describe(s.Actions)
			if got != want {
				t.Fatalf("seed %d, split %d: decided\n%s\nwant\n%s", seed, split, got, want)
			}
			if !reflect.DeepEqual(s.Outcome.CustomStatus, base.Outcome.CustomStatus) {
				t.Fatalf("seed %d, split %d: custom status differs", seed, split)
			}
			if e := base.End(); e != nil && !reflect.DeepEqual(s.End().CarryOver, e.CarryOver) {
				t.Fatalf("seed %d, split %d: carries over %v, want %v", seed, split, s.End().CarryOver, e.CarryOver)
			}
		}
	}
	for _, status := range []history.RuntimeStatus{history.Completed, history.Failed, history.ContinuedAsNew} {
		if ends[status] == 0 {
			t.Errorf("no run ended as %s: %v", status, ends)
		}
	}
}
