package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// HistoryMismatchError means that the code of an orchestrator deviates from the history
// of an instance, so the instance cannot continue with this code. [Registry.Verify]
// returns it. An instance that fails for this reason has a [NonDeterminismError].
type HistoryMismatchError struct {
	InstanceID InstanceID
	Name       string  // name of the orchestrator
	Version    Version // version of the instance
	// Decision is the number of the first action that differs, counted from 0 over all
	// actions of the execution.
	Decision int
	// Event is the index of the action's event in the history, or the length of the
	// history if it has no such event. Time is the time of the event, or zero.
	Event int
	Time  time.Time
	// Recorded describes the action in the history, and Produced the action of the code.
	Recorded, Produced string

	text string
}

// Error returns a message of several lines with the position and the difference.
func (e *HistoryMismatchError) Error() string {
	return fmt.Sprintf("the code of orchestrator %q does not match the history of instance %q\n%s", e.Name, e.InstanceID, e.text)
}

// ErrNotRegistered means that a registry has no orchestrator for an instance's name and
// version.
var ErrNotRegistered = errors.New("the orchestrator is not registered")

// ErrActivityNotRegistered means that an instance waits for an activity that is not
// registered. The current code calls a step instead.
var ErrActivityNotRegistered = errors.New("the activity is not registered")

// StallError means that an orchestrator does not yield during a replay: it blocks
// outside durable calls, or it computes without end.
type StallError struct {
	InstanceID InstanceID
	Name       string        // name of the orchestrator
	Version    Version       // version of the instance
	Limit      time.Duration // the time without a durable call
	Stack      string        // stack of the code that does not yield

	reason, text string
}

// Error returns the reason with the names of the instance and the orchestrator. It
// includes the stack unless an earlier error has the same one.
func (e *StallError) Error() string { return e.text }

// Reason returns the message without names and stack.
func (e *StallError) Reason() string { return e.reason }

// replayed returns the error of a replay with the types of this package.
func replayed(err error) error {
	s, ok := errors.AsType[*dispatch.StallError](err)
	if !ok {
		return err
	}
	return &StallError{
		InstanceID: InstanceID(s.InstanceID), Name: s.Name, Version: Version(s.Version),
		Limit: s.Limit, Stack: s.Stack, reason: s.Reason(), text: s.Error(),
	}
}

// verify replays a history with the functions of a registry.
func verify(r *Registry, events []history.Event) error {
	if len(events) == 0 {
		return nil
	}
	start := history.StartOf(events)
	if start == nil {
		return fmt.Errorf("the history has no %s", history.TypeExecutionStarted)
	}
	if history.IsEntity(start.Instance.InstanceID) {
		return nil
	}
	code, ok := replayCode(r, start)
	if !ok {
		return fmt.Errorf("instance %q of orchestrator %q, version %q: %w", start.Instance.InstanceID, start.Name, start.Version, ErrNotRegistered)
	}
	var difference *explain.Difference
	var activities []string
	err := r.replays.Run(start, code, func(code replay.Code) {
		x := replay.New(start.Instance, code)
		defer x.Close()
		difference, activities = explain.Compare(x, events)
	})
	if err != nil {
		return replayed(err)
	}
	if difference != nil {
		return mismatch(start, difference)
	}
	for _, name := range activities {
		if _, ok := (*engineFunctions)(r).Activity(name); !ok {
			return fmt.Errorf("instance %q waits for activity %q, which orchestrator %q now calls as a step; register the activity until no instance waits for it: %w",
				start.Instance.InstanceID, name, start.Name, ErrActivityNotRegistered)
		}
	}
	return nil
}

// waitsOf returns the result of [explain.Waits]. The code may be nil. The error is a
// *[StallError] if the code does not yield.
func waitsOf(r *Registry, start *history.ExecutionStarted, code replay.Code, events []history.Event) ([]explain.Wait, *explain.Difference, error) {
	if code == nil {
		waits, difference := explain.Waits(nil, events)
		return waits, difference, nil
	}
	var waits []explain.Wait
	var difference *explain.Difference
	if err := r.replays.Run(start, code, func(code replay.Code) { waits, difference = explain.Waits(code, events) }); err != nil {
		return nil, nil, replayed(err)
	}
	return waits, difference, nil
}

// replayCode returns the code of an instance for a replay without logging.
func replayCode(r *Registry, start *history.ExecutionStarted) (replay.Code, bool) {
	return (*engineFunctions)(r.WithLogger(slog.New(slog.DiscardHandler))).Orchestrator(start.Name, start.Version)
}

func mismatch(start *history.ExecutionStarted, d *explain.Difference) *HistoryMismatchError {
	return &HistoryMismatchError{
		InstanceID: InstanceID(start.Instance.InstanceID), Name: start.Name, Version: Version(start.Version),
		Decision: d.Decision, Event: d.Event, Time: d.At, Recorded: d.Recorded, Produced: d.Produced, text: d.String(),
	}
}

// MarshalHistory encodes a complete history as a JSON array with one event per line.
// [UnmarshalHistory] and durabletest.Replay read it.
func MarshalHistory(events []history.Event) ([]byte, error) {
	text := []byte("[")
	for i, e := range events {
		one, err := eventjson.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, '\n'), one...)
	}
	return append(text, "\n]\n"...), nil
}

// UnmarshalHistory decodes a history that [MarshalHistory] encoded.
func UnmarshalHistory(text []byte) ([]history.Event, error) {
	var all []struct {
		EventType string
		eventjson.Event
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	events := make([]history.Event, len(all))
	for i := range all {
		kind, ok := history.ParseEventType(all[i].EventType)
		if !ok {
			return nil, fmt.Errorf("read history: event %d is a %q, which is not a type of event", i, all[i].EventType)
		}
		e, err := all[i].Decode(kind)
		if err != nil {
			return nil, fmt.Errorf("read history: event %d: %w", i, err)
		}
		events[i] = e
	}
	return events, nil
}
