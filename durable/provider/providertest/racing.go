package providertest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Concurrent operations on one instance ID. One of them succeeds, and the others return an
// error. The success is final.
var racing = area{"races", []test{
	{"one of several concurrent starts of an ID succeeds", running(racingStarts)},
	{"one of several concurrent starts replaces an instance that has ended", running(racingReplacements)},
	{"one of several starts succeeds and is kept during a concurrent purge", running(racingPurge)},
	{"one of several starts and a rewind succeeds for a failed instance", running(racingRewind)},
	{"an instance that was started again after it failed is not rewound", running(rewoundTooLate)},
	{"a start during the end of an instance is refused or succeeds", running(racingEnd)},
	{"a start during continue-as-new is refused", running(racingContinuation)},
	{"a start that replaces any instance succeeds during the end of an instance", running(racingOver(false))},
	{"a start that replaces any instance succeeds during continue-as-new", running(racingOver(true))},
	{"a start that arrives twice begins one execution", running(startedTwice)},
	{"a scheduled start that replaces a running instance is kept", running(replacedLater)},
}}

// rounds is the number of repetitions of each race.
const rounds = 4

func racingStarts(w *world) { w.race("a", "execution").finish() }

// racingReplacements completes the winner of each race, so that the next race replaces it.
func racingReplacements(w *world) {
	for round := range rounds {
		w.race("a", fmt.Sprintf("round %d, execution", round)).end(history.Completed, nil).finish()
	}
	w.quiet("the last has ended")
}

func racingPurge(w *world) {
	if _, ok := w.p.(provider.Purger); !ok {
		w.Skip("the provider does not implement Purger")
	}
	w.create("a")
	w.next("a").end(history.Completed, large("output")).finish()
	for round := range rounds {
		seen := w.state("a")
		e := w.race("a", fmt.Sprintf("round %d, execution", round), func() { _ = w.purgeSeen("a", seen) })
		if !e.end(history.Completed, large("output")).tryFinish() { // loaded before the purge
			e = w.next("a")
			e.end(history.Completed, large("output")).finish()
		}
		s := w.state("a")
		w.equal("status", s.Status, history.Completed)
		w.equal("output", s.Output, large("output"))
		w.equal("history", w.history("a"), w.histories[e.item.Instance])
	}
}

func racingRewind(w *world) {
	rewinder, ok := w.p.(provider.Rewinder)
	if !ok {
		w.Skip("the provider does not implement Rewinder")
	}
	for round := range rounds {
		id := fmt.Sprintf("a%d", round)
		first := w.failing(id)
		failed := w.histories[first]
		w.rewindPlan(id)
		var rewound error
		winner := w.startAtOnce(id, "again", func() {
			ctx, cancel := w.patient()
			defer cancel()
			rewound = rewinder.Rewind(ctx, id, "why")
		})
		switch {
		case rewound == nil && winner >= 0:
			w.Errorf("round %d: start %d and the rewind both succeeded; want one", round, winner)
		case rewound != nil && winner < 0:
			w.Fatalf("round %d: all starts and the rewind failed; want one success; rewind: %v", round, rewound)
		case rewound == nil:
			w.equal("instance of the state", w.state(id).Instance, first)
			w.nextRewound(id).end(history.Completed, nil).finish()
			w.equal("history", w.history(id), w.histories[first])
			continue
		}
		w.histories[first] = failed
		e := w.nextExcept(first)
		w.isWinner(e, "again", winner)
		if !e.end(history.Completed, nil).tryFinish() { // loaded before the rewind
			e = w.nextExcept(first)
			e.end(history.Completed, nil).finish()
		}
		w.equal("history", w.history(id), w.histories[e.item.Instance])
		w.equal("status", w.state(id).Status, history.Completed)
	}
}

func rewoundTooLate(w *world) {
	w.failing("a")
	second, err := w.startSecond("a", live)
	w.must("start it again", err)
	late := func(when string) {
		w.Helper()
		err := w.rewind("a", "why")
		if !errors.Is(err, provider.ErrInstanceChanged) && !errors.Is(err, provider.ErrInstanceNotFound) {
			w.Errorf("Rewind of an instance that was started again and %s: %v, want %v", when, err, provider.ErrInstanceChanged)
		}
	}
	late("is Pending")
	e := w.nextOf("a")
	w.equal("instance of the work item", e.item.Instance, second)
	if !e.tryFinish() { // loaded before the second start
		e = w.next("a")
		e.finish()
	}
	late("runs")
	w.equal("status", w.state("a").Status, history.Running)
	w.equal("history", w.history("a"), w.histories[second])
	w.discardUntilQuiet(func(e *episode) { w.equal("execution that is dispatched", e.item.Instance, second) })
}

func racingEnd(w *world) {
	for round := range rounds {
		id := fmt.Sprintf("a%d", round)
		first := w.create(id)
		e := w.next(id).end(history.Completed, text("output"))
		winner := w.startAtOnce(id, "again", e.finish)
		if winner < 0 { // all starts came before the end
			s := w.state(id)
			w.equal("instance", s.Instance, first)
			w.equal("status", s.Status, history.Completed)
			continue
		}
		e = w.nextOf(id)
		w.isWinner(e, "again", winner)
		e.finish()
	}
}

func racingContinuation(w *world) {
	w.create("a")
	for round := range rounds {
		second := history.OrchestrationInstance{InstanceID: "a", ExecutionID: fmt.Sprintf("generation %d", round)}
		e := w.next("a").continueAsNew(second.ExecutionID, nil)
		if winner := w.startAtOnce("a", "again", e.finish); winner >= 0 {
			w.Fatalf("start %d succeeded although the instance has not ended", winner)
		}
		w.equal("instance", w.state("a").Instance, second)
		w.send(raised("a", "Event", nil))
	}
}

// racingOver runs a start that refuses no status while an episode is committed. In either
// order, the instance of the start exists in the end.
func racingOver(continues bool) func(*world) {
	return func(w *world) {
		for round := range rounds {
			id := fmt.Sprintf("a%d", round)
			w.create(id)
			e := w.next(id)
			if continues {
				e.continueAsNew("second", nil)
			} else {
				e.end(history.Completed, text("output"))
			}
			start := started(id, "of the start", text("input"))
			var failed error
			atOnce(func() { failed = w.tryCreate(start, nil) }, func() { e.tryFinish() })
			w.must("StartInstance", failed)
			e = w.nextOf(id)
			for e.item.Instance != start.Instance && len(e.item.Messages) > 0 { // messages of the replaced execution, redelivered
				e.release()
				e = w.nextOf(id)
			}
			w.equal("state", w.state(id).Instance, start.Instance)
			w.equal("input", w.state(id).Input, text("input"))
			e.finish()
			w.equal("status", w.state(id).Status, history.Running)
			w.equal("history", w.history(id), w.histories[start.Instance])
		}
	}
}

func startedTwice(w *world) {
	start := started("a", "execution", text("input"))
	w.must("StartInstance", w.tryCreate(start, nil))
	w.must("second StartInstance before the first episode", w.tryCreate(start, nil))
	w.next("a").finish()
	w.must("StartInstance after the first episode", w.tryCreate(start, nil))
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	if n := len(e.item.History); n == 0 {
		w.Error("the second start began the execution again")
	}
	e.end(history.Completed, nil).finish()
	w.equal("history", w.history("a"), w.histories[start.Instance])
}

func replacedLater(w *world) {
	first := w.begin("a")
	start := started("a", "of the start", text("input"))
	start.ScheduledStart = now().Add(moment)
	w.must("StartInstance", w.tryCreate(start, nil))
	if w.hub.Reopen != nil { // clears the provider's memory
		w.reopen()
	}
	event := raised("a", "Event", nil)
	event.Target = first
	w.send(event)
	for {
		ctx, cancel := w.patient()
		e := w.try(ctx)
		cancel()
		if e == nil {
			w.Fatal("the start was not dispatched")
		}
		if e.item.Instance == start.Instance {
			w.equal("state", w.state("a").Instance, start.Instance)
			e.finish()
			return
		}
		e.custom(text(`"of the first"`)).tryFinish()
		w.equal("state", w.state("a").Instance, start.Instance)
		w.equal("status", w.state("a").Status, history.Pending)
	}
}

// atOnce calls functions concurrently and waits for all of them.
func atOnce(all ...func()) {
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(f)
	}
	group.Wait()
}
