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

// ReasonKind is the kind of a [Reason].
type ReasonKind string

// Kinds of reasons why an instance is waiting.
const (
	// ReasonActivity means that a scheduled activity has no result yet. It is queued or
	// running.
	ReasonActivity ReasonKind = explain.Activity
	// ReasonStep means that a step has no recorded result yet. It is running, or waits for
	// a slot. A program without the orchestrator's code cannot see the step unless its
	// start is recorded ([AtMostOnce]).
	ReasonStep ReasonKind = explain.Step
	// ReasonSubOrchestration means that a child has not ended.
	ReasonSubOrchestration ReasonKind = explain.SubOrchestration
	// ReasonTimer means that a timer has not fired.
	ReasonTimer ReasonKind = explain.Timer
	// ReasonEvent means that an external event has not been raised. The awaited events
	// are known only for registered orchestrators.
	ReasonEvent ReasonKind = explain.Event
	// ReasonEntityCall means that an entity has not answered.
	ReasonEntityCall ReasonKind = explain.EntityCall
	// ReasonEntityLock means that entities are not locked yet.
	ReasonEntityLock ReasonKind = explain.EntityLock

	// ReasonEnded means that the instance has ended.
	ReasonEnded ReasonKind = "ended"
	// ReasonScheduled means that the instance is scheduled to start later.
	ReasonScheduled ReasonKind = "scheduled"
	// ReasonNotStarted means that no worker has started the instance.
	ReasonNotStarted ReasonKind = "notStarted"
	// ReasonSuspended means that the instance is suspended.
	ReasonSuspended ReasonKind = "suspended"
	// ReasonNotRegistered means that no orchestrator is registered for the instance.
	ReasonNotRegistered ReasonKind = "notRegistered"
	// ReasonHistoryMismatch means that the registered code deviates from the history.
	// Unless the code is replaced first, the instance fails when it resumes, or is held
	// back if [Config.HoldNonDeterministic] is set.
	ReasonHistoryMismatch ReasonKind = "historyMismatch"
	// ReasonHeldBack means that a worker holds back the instance or one of its
	// activities; see [Worker.Blocked]. Only the management API reports it, for its own
	// worker.
	ReasonHeldBack ReasonKind = "heldBack"
	// ReasonStalled means that the orchestrator or an entity operation does not yield.
	// It is running, or its replay was abandoned.
	ReasonStalled ReasonKind = "stalled"
	// ReasonReady means that the instance is not waiting: its next episode is due or
	// running.
	ReasonReady ReasonKind = "ready"
)

// Reason is one reason why an instance is waiting.
type Reason struct {
	Kind ReasonKind
	// Name is the name of the activity, step, sub-orchestration, event or entity operation.
	// For a timer of a [RetryPolicy] it is the name of the function that is retried.
	Name string
	// Attempt is the number of the current attempt, or of the attempt that starts when
	// the timer fires. Attempts is the maximum number. Both are zero if no attempt has
	// failed.
	Attempt, Attempts int
	// TaskID is the number of the awaited action, or -1.
	TaskID int
	// InstanceIDs are the IDs of the child, or of the called or locked entities.
	InstanceIDs []InstanceID
	// HeldBy is the instance that holds one of the locks. It is empty if unknown.
	HeldBy InstanceID
	// Since is the time at which the wait started. It is zero if unknown.
	Since time.Time
	// Poll is the number of the most recent due call of a [Poll], from 1. It is zero for
	// other reasons.
	Poll int
	// Due is the time at which the timer fires, the instance starts or the next call of a
	// poll is due. It is zero for other kinds.
	Due time.Time
	// Where lists the lines of code that wait or that differ from the history, such as
	// "order.go:103". It is nil if no code is waiting or the lines are not known.
	Where []string
	// IsNotAwaited reports that the task is in flight but the orchestrator is not
	// awaiting it, for example the later tasks of a fan-out. Its completion alone does
	// not resume the orchestrator.
	IsNotAwaited bool
	// IsOutcomeStored reports that the outcome is stored and the suspended instance
	// processes it when it is resumed.
	IsOutcomeStored bool
	// LastError is the error of the previous attempt, if Attempt is not zero.
	LastError string
	// QueuePosition is the queue position of an instance that has not started. It is nil
	// for other instances, and if the hub cannot tell.
	QueuePosition *QueuePosition
	// RunsHere reports whether this app's worker runs the activity or the step.
	// RunningSince is the start of that run. RunsHere is nil for other kinds and if
	// unknown. Only the management API sets both.
	RunsHere     *bool
	RunningSince time.Time
	// Detail is the reason of a suspension, the output of an ended instance, the
	// difference from the history, or the code that does not yield.
	Detail string
	// Stack is the stack of code that does not yield. It is empty for other kinds.
	Stack string
}

// String describes the reason, without times.
func (r Reason) String() string {
	var text string
	switch r.Kind {
	case ReasonActivity:
		text = fmt.Sprintf("activity %q", r.Name) + r.attempt(", attempt %d of %d")
		switch {
		case r.RunsHere == nil:
		case *r.RunsHere:
			text += ", running on this worker"
		default:
			text += ", queued or running on another worker"
		}
	case ReasonStep:
		text = r.step()
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
		text = "waits for a worker to start it"
		if r.QueuePosition != nil {
			text += ": " + r.QueuePosition.String()
		}
	case ReasonSuspended:
		text = "suspended"
	case ReasonNotRegistered:
		text = fmt.Sprintf("orchestrator %q is not registered in this app", r.Name)
	case ReasonHistoryMismatch:
		text = "the code does not match the history"
	case ReasonHeldBack:
		text = "held back"
	case ReasonStalled:
		return r.Detail
	case ReasonReady:
		text = "is running or about to run"
	}
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	if r.LastError != "" {
		text += ", last error: " + r.LastError
	}
	if r.IsOutcomeStored {
		text += ", outcome stored until the instance is resumed"
	}
	if r.IsNotAwaited {
		text += ", not awaited now"
	}
	return text
}

// step describes a step or a poll.
func (r Reason) step() string {
	text, other := fmt.Sprintf("step %q", r.Name), ", waiting for a slot or running on another worker"
	if r.Poll > 0 {
		text, other = fmt.Sprintf("poll %q, call %d", r.Name, r.Poll), ", waiting for its next call or running on another worker"
	}
	text += r.attempt(", attempt %d of %d")
	switch {
	case r.RunsHere == nil:
		return text
	case *r.RunsHere:
		return text + ", running on this worker"
	}
	return text + other
}

// attempt formats the number of the attempt. It returns an empty string if no attempt
// has failed.
func (r Reason) attempt(words string) string {
	if r.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf(words, r.Attempt, r.Attempts)
}

// QueuePosition is the queue position of an instance that no worker has started.
type QueuePosition = provider.QueuePosition

// Diagnosis lists the reasons why an instance is waiting. [Client.Why] returns one.
type Diagnosis struct {
	State   *InstanceState
	Reasons []Reason // at least one
}

// why implements [Client.Why].
func why(ctx context.Context, c *Client, id InstanceID) (*Diagnosis, error) {
	state, err := c.Status(ctx, id, Fetch{})
	if err != nil {
		return nil, err
	}
	d := &Diagnosis{State: state}
	if state.Status.IsTerminal() {
		if state, err = c.Status(ctx, id, Fetch{Output: true}); err != nil {
			return nil, err
		}
		d.add(Reason{Kind: ReasonEnded, TaskID: -1, Since: state.LastUpdatedAt, Detail: truncate(state.Output)})
		return d, nil
	}
	events, err := c.History(ctx, id)
	if err != nil {
		return nil, err
	}
	start := history.StartOf(events)
	if start == nil {
		if err := d.notStarted(ctx, c); err != nil {
			return nil, err
		}
		return d, nil
	}
	d.suspension(events)
	var code replay.Code
	if !history.IsEntity(string(id)) && c.registry != nil {
		var ok bool
		if code, ok = replayCode(c.registry, start); !ok {
			d.add(Reason{Kind: ReasonNotRegistered, TaskID: -1, Name: start.Name})
		}
	}
	waits, difference, err := waitsOf(c.registry, start, code, events)
	if stall, ok := errors.AsType[*StallError](err); ok {
		d.add(Reason{Kind: ReasonStalled, TaskID: -1, Name: start.Name, Detail: fmt.Sprintf("orchestrator %q %s", start.Name, stall.Reason()), Stack: stall.Stack})
		waits, _ = explain.Waits(nil, events)
	}
	if difference != nil {
		m := mismatch(start, difference)
		d.add(Reason{Kind: ReasonHistoryMismatch, TaskID: m.Decision, Since: m.Time, Where: difference.Where, Detail: fmt.Sprintf(
			"decision %d: the history has %s, and the code did %s; to be compatible, the code must %s", m.Decision, m.Recorded, m.Produced, difference.CompatibleChange())})
	}
	for _, one := range waits {
		r := Reason{
			Kind: ReasonKind(one.Kind), Name: one.Name, TaskID: one.Task, Since: one.Since, Due: one.Due, Where: one.Where,
			Attempt: one.Attempt, Attempts: one.Attempts, LastError: truncate(&one.LastError),
			IsOutcomeStored: one.IsOutcomeStored, IsNotAwaited: code != nil && !one.IsAwaited,
		}
		for _, instance := range one.Instances {
			r.InstanceIDs = append(r.InstanceIDs, InstanceID(instance))
		}
		if one.Poll != nil {
			r.Poll, _, r.Due = one.Poll.PollAt(time.Now())
		}
		if r.Kind == ReasonEntityLock {
			if r.HeldBy, err = lockHolder(ctx, c, r.InstanceIDs, id); err != nil {
				return nil, err
			}
		}
		d.add(r)
	}
	if len(d.Reasons) == 0 {
		d.add(Reason{Kind: ReasonReady, TaskID: -1, Since: state.LastUpdatedAt})
	}
	return d, nil
}

func (d *Diagnosis) add(r Reason) { d.Reasons = append(d.Reasons, r) }

// notStarted adds the reason of an instance without a history.
func (d *Diagnosis) notStarted(ctx context.Context, c *Client) error {
	s := d.State
	if s.ScheduledAt.After(time.Now()) {
		d.add(Reason{Kind: ReasonScheduled, TaskID: -1, Since: s.CreatedAt, Due: s.ScheduledAt})
		return nil
	}
	r := Reason{Kind: ReasonNotStarted, TaskID: -1, Since: s.CreatedAt}
	if placer, ok := c.hub.(provider.QueuePositioner); ok {
		place, err := placer.QueuePosition(ctx, s.Instance.InstanceID)
		switch {
		case err == nil:
			r.QueuePosition = &place
		case !errors.Is(err, provider.ErrNotSupported):
			return fmt.Errorf("find the queue position of instance %s: %w", s.Instance.InstanceID, err)
		}
	}
	d.add(r)
	return nil
}

// suspension adds a reason if the instance is suspended.
func (d *Diagnosis) suspension(events []history.Event) {
	if s := explain.SuspensionOf(events); s != nil {
		d.add(Reason{Kind: ReasonSuspended, TaskID: -1, Since: s.Since, Detail: truncate(s.Reason)})
	}
}

// lockHolder returns the first instance other than waits that holds a lock of one of
// the entities.
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

// truncate shortens a text. It returns an empty string for nil.
func truncate(text *string) string {
	const most = 300
	if text == nil {
		return ""
	}
	if r := []rune(*text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return *text
}
