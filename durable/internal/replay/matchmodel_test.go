package replay_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// decisions is a model of replay that shares no code with it. It returns the decisions of the
// steps of [code] in each episode: the first, and one after each event. Events are "done 0",
// "fired 1" and "child 2", with the numbers of actions, or "raise E". The result waits is the
// event that the steps wait for at the end. It is empty if they have ended.
func decisions(steps, events []string) (episodes [][]string, waits string) {
	came, next, position := map[string]int{}, 0, 0
	ended := false
	for i := 0; i <= len(events); i++ {
		if i > 0 {
			came[events[i-1]]++
		}
		var decided []string
		for !ended && (waits == "" || came[waits] > 0) {
			if waits != "" {
				came[waits]--
				waits = ""
			}
			if position == len(steps) {
				decided, ended = append(decided, "end"), true
				break
			}
			step, forget := strings.CutPrefix(steps[position], "!")
			verb, name, _ := strings.Cut(step, " ")
			position++
			if verb == "wait" {
				waits = "raise " + name
				continue
			}
			decided = append(decided, step)
			if event := map[string]string{"task": "done ", "timer": "fired ", "child": "child "}[verb]; event != "" && !forget {
				waits = event + strconv.Itoa(next)
			}
			next++
		}
		episodes = append(episodes, decided)
	}
	return episodes, waits
}

// recordOf returns the history of the given episodes and the events between them.
func recordOf(episodes [][]string, events []string) (past []history.Event) {
	id := 0
	for i, decided := range episodes {
		past = append(past, begin())
		if i == 0 {
			past = append(past, start())
		} else {
			past = append(past, eventOf(events[i-1]))
		}
		for _, step := range decided {
			verb, name, _ := strings.Cut(step, " ")
			past = append(past, map[string]func() history.Event{
				"task":  func() history.Event { return task(id, name) },
				"timer": func() history.Event { return timer(id) },
				"child": func() history.Event { return child(id, name) },
				"send":  func() history.Event { return sent(id, name) },
			}[verb]())
			id++
		}
		past = append(past, end())
	}
	return past
}

func eventOf(text string) history.Event {
	what, which, _ := strings.Cut(text, " ")
	id, _ := strconv.Atoi(which)
	switch what {
	case "done":
		return replaytest.Done(id, "")
	case "fired":
		return replaytest.Fired(id)
	case "child":
		return &history.SubOrchestrationInstanceCompleted{Header: head(-1), TaskScheduledID: id}
	}
	return replaytest.Raised(which, resemblesAnswer)
}

// One step of an orchestrator is changed, at any position. Replay must report a divergence
// exactly if a recorded episode would have other decisions.
func TestMatch_FindsExactlyTheChangesThatAlterDecisions(t *testing.T) {
	t.Parallel()
	steps := []string{"task A", "task B", "timer", "child C", "send E", "wait E", "!task A", "!timer", "!child C", "wait F"}
	random := rand.New(rand.NewPCG(1, 2))
	any := func() string { return steps[random.IntN(len(steps))] }
	found, same := 0, 0
	for range 20_000 {
		var original []string
		for range 1 + random.IntN(5) {
			original = append(original, any())
		}
		var events []string
		for _, waits := decisions(original, nil); waits != "" && random.IntN(8) > 0; _, waits = decisions(original, events) {
			if random.IntN(3) == 0 {
				waits = "raise Noise" // an episode without decisions
			}
			events = append(events, waits)
		}
		if len(events) == 0 {
			continue
		}
		changed, at := slices.Clone(original), random.IntN(len(original))
		switch random.IntN(4) {
		case 0:
			changed = slices.Insert(changed, at, any())
		case 1:
			changed = slices.Delete(changed, at, at+1)
		case 2:
			changed[at] = any()
		case 3:
			changed = append(changed, any())
		}
		recorded, _ := decisions(original, events)
		decided, _ := decisions(changed, events)
		past := len(events) // the number of recorded episodes; the last event is new
		differs := !slices.EqualFunc(recorded[:past], decided[:past], slices.Equal)
		got := run(t, code(changed...), recordOf(recorded[:past], events), eventOf(events[past-1])).Actions
		var text []string
		diverged := false
		for _, a := range got {
			switch a := a.(type) {
			case *replay.ScheduleTask:
				text = append(text, "task "+a.Name)
			case *replay.CreateTimer:
				text = append(text, "timer")
			case *replay.CreateSubOrchestration:
				text = append(text, "child "+a.Name)
			case *replay.SendEvent:
				text = append(text, "send "+a.Name)
			case *replay.Complete:
				text = append(text, "end")
				diverged = a.Failure != nil && a.Failure.ErrorType == "*durable.NonDeterminismError"
			}
		}
		if diverged != differs || !differs && !slices.Equal(text, decided[past]) {
			t.Fatalf("recorded by %q, replayed by %q, with %q: divergence reported: %v, want %v; decided %q, want %q",
				original, changed, events, diverged, differs, text, decided[past])
		}
		if differs {
			found++
		} else {
			same++
		}
	}
	if found < 2000 || same < 2000 {
		t.Errorf("%d changes alter decisions and %d do not; want at least 2,000 of each", found, same)
	}
}
