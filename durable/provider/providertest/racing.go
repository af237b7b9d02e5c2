package providertest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Of several who want one ID at the same time, one gets it, and the others are told.
// What the winner was told holds.
var racing = area{"races", []test{
	{"of starts that race for an ID one wins", running(racingStarts)},
	{"of starts that race to replace an instance that has ended one wins", running(racingReplacements)},
	{"of starts and a purge that race for an instance that has ended one start wins and stays", running(racingPurge)},
	{"of starts and a rewind that race for an instance that has failed one wins", running(racingRewind)},
	{"an instance that was started anew since it failed is not rewound", running(rewoundTooLate)},
	{"a start that races with the end of an instance is refused or wins", running(racingEnd)},
	{"a start that races with an instance that continues as new is refused", running(racingContinuation)},
	{"a start that replaces whatever there is wins over an end that comes at the same time", running(racingOver(false))},
	{"a start that replaces whatever there is wins over a continuation that comes at the same time", running(racingOver(true))},
	{"a start that arrives twice begins one execution", running(startedTwice)},
	{"a start for later that replaces whatever there is stays though that goes on", running(replacedLater)},
}}

// rounds is how often each race is run.
const rounds = 4

func racingStarts(w *world) { w.race("a", "execution").finish() }

// racingReplacements has the winner of each race end and be replaced by that of the next.
func racingReplacements(w *world) {
	for round := range rounds {
		w.race("a", fmt.Sprintf("round %d, execution", round)).end(history.Completed, nil).finish()
	}
	w.quiet("the last has ended")
}

func racingPurge(w *world) {
	if _, ok := w.p.(provider.Purger); !ok {
		w.Skip("the provider does not purge")
	}
	w.create("a")
	w.next("a").end(history.Completed, large("output")).finish()
	for round := range rounds {
		seen := w.state("a")
		e := w.race("a", fmt.Sprintf("round %d, execution", round), func() { _ = w.purgeSeen("a", seen) })
		if !e.end(history.Completed, large("output")).survives() { // it was loaded before the purge
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
		w.Skip("the provider does not rewind")
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
			w.Errorf("round %d: start %d and the rewind were both told that they won", round, winner)
		case rewound != nil && winner < 0:
			w.Fatalf("round %d: neither a start nor the rewind won: %v", round, rewound)
		case rewound == nil:
			w.equal("instance of the state", w.state(id).Instance, first)
			w.awoken(id).end(history.Completed, nil).finish()
			w.equal("history", w.history(id), w.histories[first])
			continue
		}
		w.histories[first] = failed
		e := w.nextBut(first)
		w.isWinner(e, "again", winner)
		if !e.end(history.Completed, nil).survives() { // it was loaded before the rewind
			e = w.nextBut(first)
			e.end(history.Completed, nil).finish()
		}
		w.equal("history", w.history(id), w.histories[e.item.Instance])
		w.equal("status", w.state(id).Status, history.Completed)
	}
}

func rewoundTooLate(w *world) {
	w.failing("a")
	second, err := w.tryAgain("a", live)
	w.must("start it anew", err)
	late := func(when string) {
		w.Helper()
		err := w.rewind("a", "why")
		if !errors.Is(err, provider.ErrInstanceChanged) && !errors.Is(err, provider.ErrInstanceNotFound) {
			w.Errorf("Rewind of an instance that was started anew and %s: %v, want %v", when, err, provider.ErrInstanceChanged)
		}
	}
	late("is pending")
	e := w.nextOf("a")
	w.equal("instance of the work item", e.item.Instance, second)
	if !e.survives() { // it was loaded before
		e = w.next("a")
		e.finish()
	}
	late("goes on")
	w.equal("status", w.state("a").Status, history.Running)
	w.equal("history", w.history("a"), w.histories[second])
	w.idle(func(e *episode) { w.equal("execution that is handed out", e.item.Instance, second) })
}

func racingEnd(w *world) {
	for round := range rounds {
		id := fmt.Sprintf("a%d", round)
		first := w.create(id)
		e := w.next(id).end(history.Completed, text("output"))
		winner := w.startAtOnce(id, "again", e.finish)
		if winner < 0 { // all came before the end
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
			w.Fatalf("start %d won although the instance has not ended", winner)
		}
		w.equal("instance", w.state("a").Instance, second)
		w.send(raised("a", "Event", nil))
	}
}

// racingOver has a start, which nothing refuses, come while an episode is committed. Either
// comes first: the start is there in the end.
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
			atOnce(func() { failed = w.tryCreate(start, nil) }, func() { e.survives() })
			w.must("StartInstance", failed)
			e = w.nextOf(id)
			for e.item.Instance != start.Instance && len(e.item.Messages) > 0 { // what the old one had, once more
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
	w.must("StartInstance before it has begun", w.tryCreate(start, nil))
	w.next("a").finish()
	w.must("StartInstance when it has begun", w.tryCreate(start, nil))
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	if n := len(e.item.History); n == 0 {
		w.Error("the execution was begun anew")
	}
	e.end(history.Completed, nil).finish()
	w.equal("history", w.history("a"), w.histories[start.Instance])
}

func replacedLater(w *world) {
	first := w.begin("a")
	start := started("a", "of the start", text("input"))
	start.ScheduledStart = now().Add(moment)
	w.must("StartInstance", w.tryCreate(start, nil))
	if w.hub.Reopen != nil { // nothing is remembered
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
			w.Fatal("the start was not handed out")
		}
		if e.item.Instance == start.Instance {
			w.equal("state", w.state("a").Instance, start.Instance)
			e.finish()
			return
		}
		e.custom(text(`"of the first"`)).survives()
		w.equal("state", w.state("a").Instance, start.Instance)
		w.equal("status", w.state("a").Status, history.Pending)
	}
}

// atOnce calls functions at the same time and waits for all.
func atOnce(all ...func()) {
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(f)
	}
	group.Wait()
}
