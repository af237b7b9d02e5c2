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

// decisions says what the steps of [code] decide in each episode: in the first, and after
// each of the events, which are "done 0", "fired 1", "child 2" by the numbers of actions,
// or "raise E". waits is the event that is waited for in the end, empty if they have ended.
// It is a model of replay that shares nothing with it.
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

// recordOf is the history of episodes, and what comes after it.
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
	return replaytest.Raised(which, "")
}

// An orchestrator that is changed by one step, anywhere, is found out exactly if it decides
// something else than its history has of any episode: more where there is less or nothing,
// less, something else, or the same at another time.
func TestMatch_FindsEveryStepThatMattersAndNoOther(t *testing.T) {
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
				waits = "raise Noise" // an episode in which nothing is decided
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
		past := len(events) // the episodes that are recorded; the last event is new
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
			t.Fatalf("recorded by %q, replayed by %q, with %q: found out %v, want %v; decided %q, want %q",
				original, changed, events, diverged, differs, text, decided[past])
		}
		if differs {
			found++
		} else {
			same++
		}
	}
	if found < 2000 || same < 2000 {
		t.Errorf("%d changes matter and %d do not: too few of one of them", found, same)
	}
}
