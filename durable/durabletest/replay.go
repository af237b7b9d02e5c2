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

// Replay tests that the current code fits a recorded history of an instance. An instance with this history
// can resume on the current code; an instance that has ended would have ended at the same point and with
// the same status. Replay compares calls. It ignores their inputs and results, because an instance can
// continue if these change. If the history does not fit, the test fails with the first difference.
//
// The file is JSON in one of these formats:
//
//   - The output of `hub record`, the complete history. Prefer this format.
//   - The output of `func durable get-history`. It lacks the events that func does not
//     know: suspensions, and events that the orchestration sent to instances or entities.
//   - The rows of the hub's History table, in the table service's format: an array, an
//     object with the array as its value, or one object per line. All rows must belong to
//     one instance, and no payload may be in a blob.
//   - The status of an instance from the management API, fetched with
//     showHistory=true&showHistoryOutput=true, or its historyEvents alone, as
//     `hub history ID --output json` prints them.
//
// The management API omits the start of episodes and the order of decisions with the same time. Replay
// restores both from the times and from the calls of the code. The restored history is exact with these
// exceptions:
//
//   - If several calls of one activity have the same time, they get their results in the
//     order in which the results arrived.
//   - The orchestrator's current time is approximate.
//   - Tags and the parent are unknown. The version is known only if the status has it. The execution ID is
//     known only if the orchestration called an entity.
//
// If your code depends on one of these, use another format.
func Replay(t TB, functions []*durable.Registration, file string) {
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
		t.Fatalf("durabletest: the code does not match the recorded history %s.\n%s", file, problem)
	}
}

// ReplayEvents is [Replay] for a history in memory, such as the result of [Instance.History] or
// [durable.Client.History].
func ReplayEvents(t TB, functions []*durable.Registration, events []history.Event) {
	t.Helper()
	if problem := newReplayer(functions).run(events); problem != "" {
		t.Fatalf("durabletest: the code does not match the history.\n%s", problem)
	}
}

// A replayer replays orchestrators on histories.
type replayer struct{ functions dispatch.Functions }

func newReplayer(functions []*durable.Registration) *replayer {
	return &replayer{dispatch.FunctionsOf(durable.NewRegistry(functions...).WithLogger(slog.New(slog.DiscardHandler)))}
}

// replay finds the orchestrator of a history and calls f with a new execution of it. The error is a
// *[dispatch.StallError] if the orchestrator does not yield.
func (r *replayer) replay(events []history.Event, f func(*replay.Execution)) error {
	for _, e := range events {
		start, ok := e.(*history.ExecutionStarted)
		if !ok {
			continue
		}
		code, ok := r.functions.Orchestrator(start.Name, start.Version)
		if !ok {
			return fmt.Errorf("instance %q needs orchestrator %q, version %q, which is not among the functions", start.Instance.InstanceID, start.Name, start.Version)
		}
		return dispatch.RunWithLimit(start, code, func(code replay.Code) {
			x := replay.New(start.Instance, code)
			defer x.Close()
			f(x)
		})
	}
	return fmt.Errorf("the history has no %s", history.TypeExecutionStarted)
}

// run replays a history. It returns the first difference between the history and the code, or an empty
// string.
func (r *replayer) run(events []history.Event) string {
	difference := ""
	err := r.replay(events, func(x *replay.Execution) {
		if d, _ := explain.Compare(x, events); d != nil {
			difference = d.String()
		}
	})
	if err != nil {
		return err.Error()
	}
	return difference
}

// read decodes a recorded history in any of the formats.
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
	return nil, errors.New("its format is unknown: neither rows of a History table, nor the output of func durable get-history, nor a status with historyEvents")
}

// restore converts a shown history into a complete one. The order of the times gives the EventIDs of
// actions; if times are equal, the code's order decides. From the first action on where the code differs
// from the history, events keep the shown order.
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
		s.end.EventID = made.nextID
		made.events = append(made.events, s.end)
	}
	return append(made.events, &history.OrchestratorCompleted{Header: history.NewHeader(made.now)}), nil
}

// A restored history is built from a shown one, episode by episode.
type restored struct {
	shown    *shown
	events   []history.Event
	now      time.Time
	nextID   int               // EventID of the next action
	fits     bool              // the code has done everything shown so far
	ended    bool              // the code has ended
	requests map[string]string // IDs of requests to entities: the recorded ID, to the ID that the code chose in this replay
}

// add appends an arrival, in an episode of its own, and the decisions that the code makes in it.
func (h *restored) add(a *arrival, x *replay.Execution) {
	if h.fits = h.fits && (a.completes == nil || a.completes.known()); !h.fits {
		// The code has not started the action that this event completes. The replay of the restored
		// history finds and reports that.
		h.recordRest()
	}
	h.now = latest(h.now, a.event)
	fresh := []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(h.now)}, a.answer()}
	// An event that ends the execution shares its episode with all later events. An instance that was
	// terminated before it made a decision is assumed not to have run at all.
	_, ends := a.event.(*history.ExecutionTerminated)
	if len(h.events) == 0 {
		h.events = append(h.events, fresh[0])
	} else if !h.ended && !(ends && len(h.shown.decisions) == 0) {
		h.events = append(h.events, &history.OrchestratorCompleted{Header: history.NewHeader(h.now)}, fresh[0])
	}
	h.events = append(h.events, fresh[1])
	if !h.fits {
		return
	}
	fresh[1] = renamed(fresh[1], h.requests)
	for _, action := range x.Episode(fresh, nil).Actions {
		if d := h.shown.recordOf(action, h.nextID); d != nil {
			h.record(d)
			noteRequest(h.requests, d.event, action)
		} else if _, h.ended = action.(*replay.Complete); !h.ended {
			h.fits = false
			return
		}
	}
}

// record appends a decision with the next EventID.
func (h *restored) record(d *decision) {
	d.event.Head().EventID = h.nextID
	h.nextID++
	h.events = append(h.events, d.event)
}

// recordRest appends the decisions that have no EventID yet.
func (h *restored) recordRest() {
	for _, d := range h.shown.decisions {
		if !d.known() {
			h.record(d)
		}
	}
}
