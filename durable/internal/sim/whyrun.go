package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Answers counts the quiet states in which a client asked why an instance waits.
type Answers struct {
	States int            // number of all states
	Kinds  map[string]int // number of states with a reason of a kind, by kind and marks
}

// String lists the kinds with their counts.
func (a *Answers) String() string {
	text := fmt.Sprintf("%d states", a.States)
	for _, kind := range slices.Sorted(maps.Keys(a.Kinds)) {
		text += fmt.Sprintf("\n\t%6d %s", a.Kinds[kind], kind)
	}
	return text
}

// quietTime is the time without an episode after which the state of an instance counts as quiet.
const quietTime = 250 * time.Millisecond

// whyRun implements the client that asks why instances wait. It compares each answer with the truth: for each
// open task, it replays the history with the task's completion and checks whether the orchestrator resumes.
type whyRun struct {
	*simulation
	client   *durable.Client
	registry *durable.Registry
	asked    map[string]bool // states that were already compared
}

func newWhyRun(s *simulation) whyRun {
	registry := s.plan.App.replayed()
	return whyRun{s, durable.NewClient(s.platform.Client(), registry), registry, map[string]bool{}}
}

// ask asks about all instances repeatedly until ctx ends.
func (s whyRun) ask(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		pause.For(ctx, time.Duration(1+mix(s.plan.Seed, fmt.Sprint("why ", n))%2500)*time.Millisecond)
		var ids []durable.InstanceID
		for state, err := range s.client.AllInstances(ctx, durable.Query{}) {
			if err != nil {
				s.failed(ctx, "list instances", err)
				break
			}
			if id := state.Instance.InstanceID; !history.IsEntity(id) {
				ids = append(ids, durable.InstanceID(id))
			}
		}
		for _, id := range ids {
			s.askOf(ctx, id)
		}
	}
}

func (s whyRun) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, durable.ErrInstanceNotFound) {
		s.fault("%s: %v", what, err)
	}
}

// askOf asks why an instance waits. It checks the answer unless the instance made progress meanwhile.
func (s whyRun) askOf(ctx context.Context, id durable.InstanceID) {
	read := func() (history.RuntimeStatus, []history.Event) {
		status, err := s.platform.Status(string(id))
		if err != nil {
			s.failed(ctx, fmt.Sprintf("status of %s", id), err)
		}
		past, err := s.client.History(ctx, id)
		if err != nil {
			s.failed(ctx, fmt.Sprintf("history of %s", id), err)
		}
		return status, past
	}
	status, past := read()
	if s.asked[stateKey(id, status, past)] {
		return
	}
	pause.For(ctx, quietTime)
	w, err := s.client.Why(ctx, id)
	if err != nil {
		s.failed(ctx, fmt.Sprintf("why of %s", id), err)
		return
	}
	if after, again := read(); ctx.Err() != nil || after != status || w.State.Status != status || !isSameHistory(past, again) {
		return
	}
	s.asked[stateKey(id, status, past)] = true
	a := answer{whyRun: s, id: id, past: past, wait: w}
	for _, what := range a.check() {
		s.fault("why of %s, %v: %s; it says %s", id, status, what, a)
	}
	a.count()
}

// stateKey identifies a state of an instance in the simulation.
func stateKey(id durable.InstanceID, status history.RuntimeStatus, past []history.Event) string {
	execution := ""
	if start := history.StartOf(past); start != nil {
		execution = start.Instance.ExecutionID
	}
	return fmt.Sprint(id, status, execution, len(past))
}

func isSameHistory(a, b []history.Event) bool {
	if len(a) != len(b) || len(a) == 0 {
		return len(a) == len(b)
	}
	last := len(a) - 1
	return a[0].Head().Timestamp.Equal(b[0].Head().Timestamp) && a[last].Head().Timestamp.Equal(b[last].Head().Timestamp)
}

// answer is the Wait of an instance and the history at that time.
type answer struct {
	whyRun
	id   durable.InstanceID
	past []history.Event
	wait *durable.Diagnosis
}

// String lists the reasons with their lines of code.
func (a answer) String() string {
	var all []string
	for _, r := range a.wait.Reasons {
		all = append(all, fmt.Sprintf("[%s %v]", r, r.Where))
	}
	return strings.Join(all, " ")
}

// count counts the state and its kinds of reasons.
func (a answer) count() {
	counts := a.plan.Asked
	counts.States++
	kinds := map[string]bool{}
	for _, r := range a.wait.Reasons {
		kind := string(r.Kind)
		if r.Attempt > 0 {
			kind += ", a retry"
		}
		if r.IsOutcomeStored {
			kind += ", held"
		}
		if r.IsNotAwaited {
			kind += ", not awaited now"
		}
		kinds[kind] = true
	}
	if counts.Kinds == nil {
		counts.Kinds = map[string]int{}
	}
	for kind := range kinds {
		counts.Kinds[kind]++
	}
}

// check returns the faults of the answer.
func (a answer) check() (wrong []string) {
	if kind, isOnly := a.onlyReason(); isOnly {
		if r := a.wait.Reasons; len(r) != 1 || r[0].Kind != kind || len(r[0].Where) > 0 {
			return []string{fmt.Sprintf("want the reason %q only", kind)}
		}
		return nil
	}
	truth, what := a.truth()
	if what != "" {
		return []string{what}
	}
	reported := map[string]bool{}
	for _, r := range a.wait.Reasons {
		key := keyOf(r)
		if key == "" {
			wrong = append(wrong, a.checkState(r)...)
			continue
		}
		reported[key] = true
		c, ok := truth[key]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s is reported but not open", key))
			continue
		case c.wakes != (len(r.Where) > 0):
			wrong = append(wrong, fmt.Sprintf("%s has the lines %v; its completion resumes the orchestrator: %v", key, r.Where, c.wakes))
		case c.wakes == r.IsNotAwaited:
			wrong = append(wrong, fmt.Sprintf("%s is marked as not awaited: %v", key, r.IsNotAwaited))
		}
		if c.isHeld != r.IsOutcomeStored {
			wrong = append(wrong, fmt.Sprintf("%s is held: %v", key, c.isHeld))
		}
		wrong = append(wrong, a.checkTimes(key, r, c)...)
	}
	for key, c := range truth {
		isOptional := c.timer != nil || strings.HasPrefix(key, "event ") // no code has to wait for it
		if !reported[key] && (c.wakes || !isOptional) {
			wrong = append(wrong, key+" is missing")
		}
	}
	return wrong
}

// onlyReason returns the single expected reason of an instance that has ended or has not run.
func (a answer) onlyReason() (durable.ReasonKind, bool) {
	switch {
	case a.wait.State.Status.IsTerminal():
		return durable.ReasonEnded, true
	case history.StartOf(a.past) != nil:
		return "", false
	case a.wait.State.ScheduledAt.After(time.Now()):
		return durable.ReasonScheduled, true
	}
	return durable.ReasonNotStarted, true
}

// keyOf returns the key of a reason in the truth. It is empty for a reason of the whole instance.
func keyOf(r durable.Reason) string {
	switch {
	case r.Kind == durable.ReasonEvent:
		return "event " + r.Name
	case r.TaskID >= 0:
		return fmt.Sprint("task ", r.TaskID)
	}
	return ""
}

// checkState checks a reason of the whole instance.
func (a answer) checkState(r durable.Reason) (wrong []string) {
	if len(r.Where) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s has lines", r.Kind))
	}
	_, suspended := withoutHeld(a.past)
	switch {
	case r.Kind == durable.ReasonSuspended && suspended != nil && suspended.Timestamp.Equal(r.Since):
	case r.Kind == durable.ReasonReady && len(a.wait.Reasons) == 1 && suspended == nil:
	default:
		wrong = append(wrong, fmt.Sprintf("%s is not true, or not since %v", r.Kind, r.Since))
	}
	return wrong
}

// checkTimes compares the times of a reason with the history.
func (a answer) checkTimes(key string, r durable.Reason, c candidate) (wrong []string) {
	if c.timer != nil && !r.Due.Equal(c.timer.FireAt) {
		wrong = append(wrong, fmt.Sprintf("%s is due at %v", key, c.timer.FireAt))
	}
	if !c.since.IsZero() && !r.Since.Equal(c.since) {
		wrong = append(wrong, fmt.Sprintf("%s began at %v, and not at %v", key, c.since, r.Since))
	}
	if r.Kind != durable.ReasonEvent || !c.wakes {
		return wrong
	}
	// The event must wake the orchestrator after the episode in which the wait began, and not before.
	for i, e := range a.past {
		if e.Type() != history.TypeOrchestratorStarted || !history.TruncateToTicks(e.Head().Timestamp).Equal(r.Since) {
			continue
		}
		end := i + 1 // the end of all episodes with this timestamp
		for end < len(a.past) && (a.past[end].Type() != history.TypeOrchestratorStarted || a.past[end].Head().Timestamp.Equal(e.Head().Timestamp)) {
			end++
		}
		before, _ := a.wakes(a.past[:i], c.completion)
		since, _ := a.wakes(a.past[:end], c.completion)
		if before || !since {
			wrong = append(wrong, fmt.Sprintf("%s does not wait since the episode of %v", key, r.Since))
		}
		return wrong
	}
	return append(wrong, fmt.Sprintf("%s waits since %v, but no episode began then", key, r.Since))
}

// candidate is something that an instance may wait for.
type candidate struct {
	completion history.Event
	since      time.Time             // zero for an event
	timer      *history.TimerCreated // nil unless it is a timer
	wakes      bool                  // the completion resumes code of the orchestrator
	isHeld     bool                  // the completion arrived during the suspension
}

// truth returns everything that the instance may wait for, or a fault of the history.
func (a answer) truth() (all map[string]candidate, fault string) {
	shown, _ := withoutHeld(a.past)
	all = candidatesOf(shown)
	now := candidatesOf(a.past)
	for _, name := range a.plan.App.events() {
		all["event "+name] = candidate{completion: &history.EventRaised{Name: name}}
	}
	for key, c := range all {
		var err error
		if c.wakes, err = a.wakes(a.past, c.completion); err != nil {
			return nil, err.Error()
		}
		_, isOpen := now[key]
		c.isHeld = !isOpen
		if name, isEvent := strings.CutPrefix(key, "event "); isEvent {
			c.isHeld = slices.ContainsFunc(a.past[len(shown):], func(held history.Event) bool {
				raised, ok := held.(*history.EventRaised)
				return ok && strings.EqualFold(raised.Name, name)
			})
		}
		all[key] = c
	}
	return all, ""
}

// candidatesOf returns the tasks that a history has started but not completed.
func candidatesOf(past []history.Event) map[string]candidate {
	open := map[string]candidate{}
	requests := map[string]string{}
	for _, e := range past {
		key, at := fmt.Sprint("task ", e.Head().EventID), e.Head().Timestamp
		switch e := e.(type) {
		case *history.TaskScheduled:
			open[key] = candidate{completion: &history.TaskCompleted{TaskScheduledID: e.EventID, Result: new(`"x"`)}, since: at}
		case *history.SubOrchestrationInstanceCreated:
			open[key] = candidate{completion: &history.SubOrchestrationInstanceCompleted{TaskScheduledID: e.EventID, Result: new("1")}, since: at}
		case *history.TimerCreated:
			open[key] = candidate{completion: &history.TimerFired{TimerID: e.EventID, FireAt: e.FireAt}, since: at, timer: e}
		case *history.EventSent:
			r, err := entity.DecodeRequest(e.Input)
			if err == nil && history.IsEntity(e.InstanceID) && !r.Signal && !entity.IsRelease(e.Name) {
				answer := entity.Response{Result: new("{}")}.Encode()
				open[key] = candidate{completion: &history.EventRaised{Name: r.ID, Input: &answer}, since: at}
				requests[strings.ToLower(r.ID)] = key
				requests[cmp.Or(r.Origin, r.ID)] = key
			}
		case *history.EventRaised:
			delete(open, requests[cmp.Or(entity.OriginOfAnswer(e), strings.ToLower(e.Name))])
		}
		if id, ok := history.Completes(e); ok {
			delete(open, fmt.Sprint("task ", id))
		}
	}
	return open
}

// withoutHeld returns the history up to its final suspension, and that suspension; nil if the instance is not
// suspended.
func withoutHeld(past []history.Event) (shown []history.Event, suspended *history.ExecutionSuspended) {
	shown = past
	for i, e := range past {
		switch e := e.(type) {
		case *history.ExecutionSuspended:
			if suspended == nil {
				shown, suspended = past[:i+1], e
			}
		case *history.ExecutionResumed:
			shown, suspended = past, nil
		}
	}
	return shown, suspended
}

// steps counts the steps of an execution.
type steps int

// Progressed implements [replay.Observer].
func (n *steps) Progressed() { *n++ }

// ForeignCall implements [replay.Observer].
func (*steps) ForeignCall(error) {}

// wakes reports whether completion resumes code of the orchestrator after a history. If the instance is
// suspended, it is resumed first.
func (a answer) wakes(past []history.Event, completion history.Event) (bool, error) {
	shown, suspended := withoutHeld(past)
	start := history.StartOf(past)
	if start == nil {
		return false, nil
	}
	code, ok := dispatch.FunctionsOf(a.registry).Orchestrator(start.Name, start.Version)
	if !ok {
		return false, fmt.Errorf("orchestrator %q is not registered", start.Name)
	}
	taken := new(steps)
	x := replay.New(start.Instance, code)
	defer x.Close()
	x.Observe(taken)
	x.TraceWaits()
	x.Episode(shown, nil)
	if suspended != nil {
		x.Episode(nil, []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(time.Now())}, &history.ExecutionResumed{}})
	}
	if d := x.Divergence(); d != nil {
		return false, d
	}
	if x.Ended() != nil {
		return false, nil
	}
	before, waiting := *taken, len(x.ParkedStacks())
	x.Episode(nil, []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(time.Now())}, completion})
	// The delivery itself counts as one step. A branch may end without another step.
	return *taken > before+1 || len(x.ParkedStacks()) != waiting || x.Ended() != nil, nil
}
