package durabletest

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Replay tests that the history of an instance, recorded in a file, is what the
// code of today would do: an instance that is at this point can go on with it,
// and one that has ended would have ended there and in the same way. Results are
// not compared with what the code would return, nor inputs with what it would
// pass on, since a change of those strands no instance. If the history does not fit,
// the test fails with the first difference.
//
// The file is JSON, in one of the forms in which histories can be had:
//
//   - What `hub record` writes, which is the whole history. Take this one if you can.
//   - What `func durable get-history` prints. It reads histories with what was
//     known to it only: no events that an orchestration sent, to another or to an
//     entity, and no suspensions.
//   - The rows of the hub's History table, as the table service returns them:
//     an array, one object with the array as its value, or one object a line.
//     They must be of one instance, and its large payloads must not be in blobs.
//   - The status of an instance from the management API, fetched with
//     showHistory=true&showHistoryOutput=true, or its historyEvents alone, as
//     `hub history ID --output json` prints them.
//
// The management API leaves out where episodes begin, and in which order things
// were begun at the same time. What is missing is put together from times and
// from what the code does. Then it is not known which of several calls of one
// activity that were made at the same time had which result: they get them in
// the order in which they came. The time that the orchestrator sees is near the
// true one; the tags and the parent are not known, nor the version unless the status
// has it, nor the execution ID unless an entity was called. Where that counts, use one
// of the other forms.
func Replay(t TB, functions []*durable.Function, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("durabletest: read recorded history: %v", err)
	}
	r := newReplayer(functions)
	events, err := r.read(text)
	if err != nil {
		t.Fatalf("durabletest: recorded history %s: %v", file, err)
	}
	if problem := r.run(events); problem != "" {
		t.Fatalf("durabletest: the code does not fit the recorded history %s.\n%s", file, problem)
	}
}

// ReplayEvents is [Replay] of a history in memory, such as [Instance.History]
// and [durable.Client.History] return.
func ReplayEvents(t TB, functions []*durable.Function, events []history.Event) {
	t.Helper()
	if problem := newReplayer(functions).run(events); problem != "" {
		t.Fatalf("durabletest: the code does not fit the history.\n%s", problem)
	}
}

// A replayer runs orchestrators against histories.
type replayer struct{ functions dispatch.Functions }

func newReplayer(functions []*durable.Function) *replayer {
	return &replayer{dispatch.FunctionsOf(durable.NewRegistry(functions...).WithLogger(slog.New(slog.DiscardHandler)))}
}

// replay calls f with a new execution of the orchestrator that a history is of. The error is a
// *[dispatch.StallError] if the orchestrator does not yield.
func (r *replayer) replay(events []history.Event, f func(*replay.Execution)) error {
	for _, e := range events {
		start, ok := e.(*history.ExecutionStarted)
		if !ok {
			continue
		}
		code, ok := r.functions.Orchestrator(start.Name, start.Version)
		if !ok {
			return fmt.Errorf("instance %q is of orchestrator %q, version %q, which is not among the functions", start.Instance.InstanceID, start.Name, start.Version)
		}
		return dispatch.Bound(start, code, func(code replay.Code) {
			x := replay.New(start.Instance, code)
			defer x.Close()
			f(x)
		})
	}
	return fmt.Errorf("the history has no %s", history.TypeExecutionStarted)
}

// run returns the first difference between a history and what the code does,
// empty if there is none.
func (r *replayer) run(events []history.Event) string {
	difference := ""
	err := r.replay(events, func(x *replay.Execution) {
		if d := explain.Compare(x, events); d != nil {
			difference = d.String()
		}
	})
	if err != nil {
		return err.Error()
	}
	return difference
}

// read returns the events of a recorded history.
func (r *replayer) read(text []byte) ([]history.Event, error) {
	status, objects, err := objectsOf(text)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, errors.New("it has no events")
	}
	switch first := objects[0]; {
	case first.has("RowKey"):
		if objects, err = currentRows(objects); err != nil {
			return nil, err
		}
		return decodeAll(objects)
	case first.has("EventId"):
		return decodeAll(objects)
	case first.has("EventType"):
		shown, err := readShown(status, objects)
		if err != nil {
			return nil, err
		}
		return r.restore(shown)
	}
	return nil, errors.New("it is neither rows of a History table, nor what func durable get-history prints, nor a status with historyEvents")
}

// restore makes a history of a shown one. The numbers of actions follow from their
// times, and those of one time from what the code does. Where the code begins to do
// something else, the events stay in the shown order.
func (r *replayer) restore(s *shown) ([]history.Event, error) {
	var beginning []history.Event
	for _, a := range s.arrivals {
		if start, ok := a.event.(*history.ExecutionStarted); ok {
			sender := s.sender()
			start.Instance.ExecutionID = sender.ExecutionID
			start.Instance.InstanceID = cmp.Or(start.Instance.InstanceID, sender.InstanceID)
		}
		beginning = append(beginning, a.event)
	}
	made := restored{shown: s, fits: true, requests: map[string]string{}}
	err := r.replay(beginning, func(x *replay.Execution) {
		for _, a := range s.arrivals {
			made.add(a, x)
		}
	})
	if err != nil {
		return nil, err
	}
	made.recordRest()
	if s.end != nil {
		s.end.EventID = made.begun
		made.events = append(made.events, s.end)
	}
	return append(made.events, &history.OrchestratorCompleted{Header: history.NewHeader(made.now)}), nil
}

// A restored history is made of a shown one.
type restored struct {
	shown    *shown
	events   []history.Event
	now      time.Time
	begun    int               // the number of the next action
	fits     bool              // the code has done what is shown
	over     bool              // the code has ended
	requests map[string]string // of entities: the IDs that the code made here, by those of the history
}

// add adds an arrival, in an episode, and what the code does then.
func (h *restored) add(a *arrival, x *replay.Execution) {
	if h.fits = h.fits && (a.answers == nil || a.answers.known()); !h.fits {
		// The code did not begin what is complete here. That it did not is
		// found when the history is replayed.
		h.recordRest()
	}
	h.now = latest(h.now, a.event)
	fresh := []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(h.now)}, a.answer()}
	// What ends the execution has the rest in its episode. One that was terminated
	// before it decided anything is taken for one that had not begun.
	_, ends := a.event.(*history.ExecutionTerminated)
	if len(h.events) == 0 {
		h.events = append(h.events, fresh[0])
	} else if !h.over && !(ends && len(h.shown.decisions) == 0) {
		h.events = append(h.events, &history.OrchestratorCompleted{Header: history.NewHeader(h.now)}, fresh[0])
	}
	h.events = append(h.events, fresh[1])
	if !h.fits {
		return
	}
	fresh[1] = renamed(fresh[1], h.requests)
	for _, action := range x.Episode(fresh, nil).Actions {
		if d := h.shown.recordOf(action, h.begun); d != nil {
			h.record(d)
			noteRequest(h.requests, d.event, action)
		} else if _, h.over = action.(*replay.Complete); !h.over {
			h.fits = false
			return
		}
	}
}

// record adds a decision with the next number.
func (h *restored) record(d *decision) {
	d.event.Head().EventID = h.begun
	h.begun++
	h.events = append(h.events, d.event)
}

// recordRest adds the decisions that have no number yet.
func (h *restored) recordRest() {
	for _, d := range h.shown.decisions {
		if !d.known() {
			h.record(d)
		}
	}
}
