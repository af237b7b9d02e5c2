package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A ReasonKind says what kind of thing an instance waits for.
type ReasonKind string

// The kinds of reasons why an instance does not go on.
const (
	// ReasonActivity: an activity was scheduled and has no result yet. It waits in its
	// queue, or runs.
	ReasonActivity ReasonKind = explain.Activity
	// ReasonSubOrchestration: a child has not ended.
	ReasonSubOrchestration ReasonKind = explain.SubOrchestration
	// ReasonTimer: a timer has not fired.
	ReasonTimer ReasonKind = explain.Timer
	// ReasonEvent: an external event has not been raised. Which ones are waited for is
	// known of orchestrators that are registered.
	ReasonEvent ReasonKind = explain.Event
	// ReasonEntityCall: an entity has not answered.
	ReasonEntityCall ReasonKind = explain.EntityCall
	// ReasonEntityLock: entities are not locked yet.
	ReasonEntityLock ReasonKind = explain.EntityLock

	// ReasonEnded: the instance has ended.
	ReasonEnded ReasonKind = "ended"
	// ReasonScheduled: the instance is to start later.
	ReasonScheduled ReasonKind = "scheduled"
	// ReasonNotStarted: no worker has begun with the instance.
	ReasonNotStarted ReasonKind = "notStarted"
	// ReasonSuspended: the instance was suspended.
	ReasonSuspended ReasonKind = "suspended"
	// ReasonNotRegistered: no orchestrator is registered for the instance.
	ReasonNotRegistered ReasonKind = "notRegistered"
	// ReasonHistoryMismatch: the registered code does something else than the history
	// has. The instance fails when it goes on, or is held back, as
	// [Config.HoldNonDeterministic] says, unless other code comes.
	ReasonHistoryMismatch ReasonKind = "historyMismatch"
	// ReasonHeldBack: a worker holds the instance or an activity of it back; see
	// [Worker.Waiting]. Only the management API tells, of its own worker.
	ReasonHeldBack ReasonKind = "heldBack"
	// ReasonStalled: the orchestrator, or an operation of the entity, does not yield. It runs, or
	// was given up when its history was replayed.
	ReasonStalled ReasonKind = "stalled"
	// ReasonReady: nothing is waited for; the next episode is due or runs.
	ReasonReady ReasonKind = "ready"
)

// A Reason is one reason why an instance does not go on.
type Reason struct {
	Kind ReasonKind
	// Name is that of the activity, sub-orchestration, event or entity operation. A timer
	// has that of what is tried again when it fires, by a [RetryPolicy].
	Name string
	// Attempt says which attempt it is, or which begins when the timer fires, and Attempts
	// how many there may be. Both are zero if none has failed.
	Attempt, Attempts int
	// TaskID is the number of the action that is waited for, -1 if it is none.
	TaskID int
	// InstanceIDs are those of the child, or of the entities that are called or locked.
	InstanceIDs []InstanceID
	// HeldBy is the instance that has one of the locks, empty if it is not known.
	HeldBy InstanceID
	// Since is when it began, zero if it is not known.
	Since time.Time
	// Due is when the timer fires or the instance starts; zero for all else.
	Due time.Time
	// Where are the lines of code that wait, such as "order.go:103", or that differ from the
	// history; nil if no code waits just now, or the lines are not known.
	Where []string
	// IsAlsoUnderWay reports that the orchestrator does not wait for it just now, as for the rest
	// of a fan-out. Its completion alone does not resume the orchestrator.
	IsAlsoUnderWay bool
	// IsHeld reports that its outcome is stored. The suspended instance takes the outcome when it
	// is resumed.
	IsHeld bool
	// LastError is the error of the previous attempt, if Attempt is not zero.
	LastError string
	// Place is where an instance stands that has not begun; nil for all else, or if the hub
	// cannot tell.
	Place *Place
	// RunsHere says whether this app's worker runs the activity, and RunningSince since when.
	// RunsHere is nil for all else, and if it is not known: only the management API tells.
	RunsHere     *bool
	RunningSince time.Time
	// Detail is the reason of a suspension, the output of what has ended, what differs, or which
	// code does not yield.
	Detail string
	// Stack is the stack of code that does not yield, empty for all else.
	Stack string
}

// String returns the reason in words, without times.
func (r Reason) String() string {
	var text string
	switch r.Kind {
	case ReasonActivity:
		text = fmt.Sprintf("activity %q", r.Name) + r.attempt(", attempt %d of %d")
		switch {
		case r.RunsHere == nil:
		case *r.RunsHere:
			text += ", runs on this worker"
		default:
			text += ", waits in its queue or runs elsewhere"
		}
	case ReasonSubOrchestration:
		text = fmt.Sprintf("sub-orchestration %q, instance %q", r.Name, r.InstanceIDs[0]) + r.attempt(", attempt %d of %d")
	case ReasonTimer:
		text = "timer" + r.attempt(" before attempt %d of %d of "+strconv.Quote(r.Name))
	case ReasonEvent:
		text = fmt.Sprintf("event %q", r.Name)
	case ReasonEntityCall:
		text = fmt.Sprintf("operation %q of entity %q", r.Name, r.InstanceIDs[0])
	case ReasonEntityLock:
		text = fmt.Sprintf("lock on %q", r.InstanceIDs)
		if r.HeldBy != "" {
			text += fmt.Sprintf(", held by %q", r.HeldBy)
		}
	case ReasonEnded:
		text = "has ended"
	case ReasonScheduled:
		text = "is scheduled to start later"
	case ReasonNotStarted:
		text = "waits for a worker to begin with it"
		if r.Place != nil {
			text += ": " + r.Place.String()
		}
	case ReasonSuspended:
		text = "suspended"
	case ReasonNotRegistered:
		text = fmt.Sprintf("orchestrator %q is not registered in this app", r.Name)
	case ReasonHistoryMismatch:
		text = "the code does not fit the history"
	case ReasonHeldBack:
		text = "held back"
	case ReasonStalled:
		return r.Detail
	case ReasonReady:
		text = "waits for nothing: it runs, or is about to"
	}
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	if r.LastError != "" {
		text += ", after the error: " + r.LastError
	}
	if r.IsHeld {
		text += ", has its outcome, which the instance takes when it is resumed"
	}
	if r.IsAlsoUnderWay {
		text += ", also under way"
	}
	return text
}

// attempt returns which attempt it is in words, empty if none has failed.
func (r Reason) attempt(words string) string {
	if r.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf(words, r.Attempt, r.Attempts)
}

// A Place is where an instance stands that no worker has begun with.
type Place = provider.Place

// A Wait says why an instance does not go on.
type Wait struct {
	State   *InstanceState
	Reasons []Reason // at least one
}

// why makes a Wait of an instance.
func why(ctx context.Context, c *Client, id InstanceID) (*Wait, error) {
	state, err := c.Status(ctx, id, Fetch{})
	if err != nil {
		return nil, err
	}
	w := &Wait{State: state}
	if state.Status.IsTerminal() {
		if state, err = c.Status(ctx, id, Fetch{Output: true}); err != nil {
			return nil, err
		}
		w.add(Reason{Kind: ReasonEnded, TaskID: -1, Since: state.LastUpdatedAt, Detail: cut(state.Output)})
		return w, nil
	}
	events, err := c.History(ctx, id)
	if err != nil {
		return nil, err
	}
	start := history.StartOf(events)
	if start == nil {
		if err := w.notStarted(ctx, c); err != nil {
			return nil, err
		}
		return w, nil
	}
	w.suspension(events)
	var code replay.Code
	if !history.IsEntity(string(id)) && c.registry != nil {
		var ok bool
		if code, ok = replayed(c.registry, start); !ok {
			w.add(Reason{Kind: ReasonNotRegistered, TaskID: -1, Name: start.Name})
		}
	}
	waits, difference, err := waitsOf(c.registry, start, code, events)
	if stall, ok := errors.AsType[*StallError](err); ok {
		w.add(Reason{Kind: ReasonStalled, TaskID: -1, Name: start.Name, Detail: fmt.Sprintf("orchestrator %q %s", start.Name, stall.Reason()), Stack: stall.Stack})
		waits, _ = explain.Waits(nil, events)
	}
	if difference != nil {
		m := mismatch(start, difference)
		w.add(Reason{Kind: ReasonHistoryMismatch, TaskID: m.Decision, Since: m.Time, Where: difference.Where, Detail: fmt.Sprintf(
			"decision %d: the history has %s, and the code did %s; it would fit to %s", m.Decision, m.Recorded, m.Produced, difference.Compatible())})
	}
	for _, one := range waits {
		r := Reason{
			Kind: ReasonKind(one.Kind), Name: one.Name, TaskID: one.Task, Since: one.Since, Due: one.Due, Where: one.Where,
			Attempt: one.Attempt, Attempts: one.Attempts, LastError: cut(&one.LastError),
			IsHeld: one.Held, IsAlsoUnderWay: code != nil && !one.IsAwaited,
		}
		for _, instance := range one.Instances {
			r.InstanceIDs = append(r.InstanceIDs, InstanceID(instance))
		}
		if r.Kind == ReasonEntityLock {
			if r.HeldBy, err = lockHolder(ctx, c, r.InstanceIDs, id); err != nil {
				return nil, err
			}
		}
		w.add(r)
	}
	if len(w.Reasons) == 0 {
		w.add(Reason{Kind: ReasonReady, TaskID: -1, Since: state.LastUpdatedAt})
	}
	return w, nil
}

func (w *Wait) add(r Reason) { w.Reasons = append(w.Reasons, r) }

// notStarted says why an instance without a history waits.
func (w *Wait) notStarted(ctx context.Context, c *Client) error {
	s := w.State
	if s.ScheduledAt.After(time.Now()) {
		w.add(Reason{Kind: ReasonScheduled, TaskID: -1, Since: s.CreatedAt, Due: s.ScheduledAt})
		return nil
	}
	r := Reason{Kind: ReasonNotStarted, TaskID: -1, Since: s.CreatedAt}
	if placer, ok := c.hub.(provider.Placer); ok {
		place, err := placer.Place(ctx, s.Instance.InstanceID)
		switch {
		case err == nil:
			r.Place = &place
		case !errors.Is(err, provider.ErrNotSupported):
			return fmt.Errorf("find the place of instance %s: %w", s.Instance.InstanceID, err)
		}
	}
	w.add(r)
	return nil
}

// suspension notes that the instance is suspended, if it is.
func (w *Wait) suspension(events []history.Event) {
	if s := explain.SuspensionOf(events); s != nil {
		w.add(Reason{Kind: ReasonSuspended, TaskID: -1, Since: s.Since, Detail: cut(s.Reason)})
	}
}

// lockHolder returns who has the first of the locks that another has than the one who
// waits for them.
func lockHolder(ctx context.Context, c *Client, entities []InstanceID, waits InstanceID) (InstanceID, error) {
	for _, id := range entities {
		state, err := c.Status(ctx, id, Fetch{})
		if errors.Is(err, ErrInstanceNotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		var status struct {
			LockedBy InstanceID `json:"lockedBy"`
		}
		if state.CustomStatus != nil && json.Unmarshal([]byte(*state.CustomStatus), &status) == nil &&
			status.LockedBy != "" && !strings.EqualFold(string(status.LockedBy), string(waits)) {
			return status.LockedBy, nil
		}
	}
	return "", nil
}

// cut returns the beginning of a text, empty for nil.
func cut(text *string) string {
	const most = 300
	if text == nil {
		return ""
	}
	if r := []rune(*text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return *text
}
