package azurestorage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// storedState is the state of an instance "i" without an unexplained hidden message.
type storedState struct {
	name     string
	state    provider.InstanceState // of "i"
	past     []history.Event
	messages []provider.TaskMessage
	want     []string // messages of an export
}

// at returns the header of an event that was recorded d ago.
func at(d time.Duration, played bool) history.Header {
	h := history.NewHeader(time.Now().Add(-d))
	h.IsPlayed = played
	return h
}

// storedStates returns states with a hidden message that the export explains, and similar states without one.
func storedStates() []storedState {
	const long = 10 * 24 * time.Hour
	now := history.TruncateToTicks(time.Now())
	i := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}
	before := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "before"}
	started := func(ago time.Duration) *history.ExecutionStarted {
		return &history.ExecutionStarted{Header: at(ago, true), Instance: i, Name: "HelloSeq"}
	}
	message := func(to history.OrchestrationInstance, e history.Event) provider.TaskMessage {
		return provider.TaskMessage{Event: e, Target: to}
	}
	first := func(playedEnd bool, decided ...history.Event) []history.Event {
		events := append([]history.Event{&history.OrchestratorStarted{Header: at(0, false)}, started(0)}, decided...)
		return append(events, &history.OrchestratorCompleted{Header: at(0, playedEnd)})
	}
	timer := func(created, due time.Duration) history.Event {
		h := at(created, false)
		h.EventID = 0
		return &history.TimerCreated{Header: h, FireAt: now.Add(due)}
	}
	end := func(status history.RuntimeStatus) history.Event {
		return &history.ExecutionCompleted{Header: header(1), Status: status}
	}
	fires := func(due time.Duration) []provider.TaskMessage {
		return []provider.TaskMessage{message(i, &history.TimerFired{Header: at(0, false), TimerID: 0, FireAt: now.Add(due)})}
	}
	name := "op@" + now.Add(time.Hour).Format(time.RFC3339)
	input := new(`{"op":"op","id":"1"}`)
	signal := message(history.OrchestrationInstance{InstanceID: "@tally@own"}, &history.EventRaised{Header: at(0, false), Name: name, Input: input})
	sent := &history.EventSent{Header: header(0), InstanceID: "@tally@own", Name: name, Input: input}
	soonName := "op@" + now.Add(30*time.Second).Format(time.RFC3339)
	sentSoon := &history.EventSent{Header: header(0), InstanceID: "@tally@own", Name: soonName, Input: input}
	start := message(i, started(0))
	childStart := *started(0)
	childStart.Parent = &history.ParentInstance{Name: "Parent", Instance: history.OrchestrationInstance{InstanceID: "parent", ExecutionID: "p"}}
	event := message(history.OrchestrationInstance{InstanceID: "i"}, &history.EventRaised{Header: at(0, false), Name: "Event"})
	other := *started(0)
	other.Instance = before
	scheduled := *started(0)
	scheduled.ScheduledStart = now.Add(time.Hour)
	suspended := &history.ExecutionSuspended{Header: at(0, true)}
	state := func(status history.RuntimeStatus) provider.InstanceState {
		s := provider.InstanceState{Instance: i, Name: "HelloSeq", Status: status, CreatedAt: now, FirstCreatedAt: now, LastUpdatedAt: now}
		if status.IsTerminal() {
			s.CompletedAt = now
		}
		return s
	}
	later, dotnet, rewound := state(history.Running), state(history.Running), state(history.Pending)
	later.FirstCreatedAt, dotnet.FirstCreatedAt = now.Add(-time.Minute), time.Time{}
	rewound.CompletedAt, rewound.LastUpdatedAt = now.Add(-time.Second), now.Add(time.Second)
	soon, lost := state(history.Pending), state(history.Pending)
	soon.ScheduledAt, lost.ScheduledAt = now.Add(time.Hour), now.Add(-time.Second)
	child := state(history.Pending)
	child.Instance.ExecutionID = ""
	entity := later
	entity.Instance.InstanceID = "@tally@i"
	return []storedState{
		{name: "an instance that waits", state: state(history.Running), past: first(false)},
		{name: "a pending instance", state: state(history.Pending), messages: []provider.TaskMessage{start}, want: []string{"ExecutionStarted for i"}},
		{name: "a pending instance with two starts", state: state(history.Pending), messages: []provider.TaskMessage{start, start}, want: []string{"ExecutionStarted for i"}},
		{name: "a pending instance with an event before its start", state: state(history.Pending), messages: []provider.TaskMessage{event, start}, want: []string{"EventRaised for i", "ExecutionStarted for i"}},
		{name: "a pending instance without a start", state: state(history.Pending), want: []string{"ExecutionStarted for i"}},
		{name: "a scheduled instance", state: soon, messages: []provider.TaskMessage{message(i, &scheduled)}, want: []string{"ExecutionStarted for i"}},
		{name: "a scheduled instance with the start of another", state: soon, messages: []provider.TaskMessage{message(i, &scheduled), message(before, &other)}, want: []string{"ExecutionStarted for i"}},
		{name: "a scheduled instance that is due without a start", state: lost, want: []string{"ExecutionStarted for i"}},
		{name: "a timer", state: state(history.Running), past: first(false, timer(0, time.Hour)), messages: fires(time.Hour), want: []string{"TimerFired for i"}},
		{name: "a copied timer of an ended instance", state: state(history.Failed), past: first(false, timer(0, time.Hour), end(history.Failed))},
		{name: "a timer of an ended instance, discarded after a week", state: state(history.Failed), past: first(false, timer(8*24*time.Hour, long), end(history.Failed))},
		{name: "a later generation", state: later, past: first(true)},
		{name: "a later generation of .NET", state: dotnet, past: first(true)},
		{name: "an entity", state: entity, past: first(true)},
		{name: "a suspended instance with a step", state: state(history.Suspended), past: append(first(true), suspended, &history.OrchestratorCompleted{Header: at(0, true)})},
		{name: "a part of an episode", state: state(history.Running), past: first(false)[:2]},
		{name: "a step", state: state(history.Running), past: first(true), messages: []provider.TaskMessage{provider.WakeSteps(i, now)}, want: []string{"GenericEvent for i"}},
		{name: "a sleeping poll", state: state(history.Running), past: first(true), messages: []provider.TaskMessage{provider.WakePolls(i, now.Add(time.Hour), []int{0})}, want: []string{"GenericEvent for i"}},
		{name: "a sender", state: state(history.Running), past: first(false, sent), messages: []provider.TaskMessage{signal}, want: []string{"EventRaised for @tally@own"}},
		{name: "a sender whose signal is due and may be consumed", state: state(history.Running), past: first(false, sentSoon)},
		{name: "a child whose row names no execution", state: child, messages: []provider.TaskMessage{message(i, &childStart)}, want: []string{"ExecutionStarted for i"}},
		{name: "a rewound instance", state: rewound, past: first(false)},
	}
}

// importState imports a state into a new hub without a worker.
func importState(t *testing.T, s storedState) *TaskHub {
	t.Helper()
	h := openHub(t, testConfig(t))
	err := h.Import(t.Context(), func(w provider.HubWriter) error {
		err := w.Instance(t.Context(), &s.state, s.past)
		for _, m := range s.messages {
			err = errors.Join(err, w.Message(t.Context(), m))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// hide enqueues an event for another instance, and hides it.
func hide(t *testing.T, h *TaskHub, hidden time.Duration) {
	t.Helper()
	event := provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: "@tally@other"}, Event: &history.EventRaised{Header: header(history.NoEventID), Name: "op"},
	}
	text, err := wire.EncodeEnvelope(&wire.Envelope{Message: &event, Sender: &history.OrchestrationInstance{}})
	if err == nil {
		_, err = h.controlQueues[0].Client.EnqueueMessage(t.Context(), string(text), &azqueue.EnqueueMessageOptions{VisibilityTimeout: new(int32(hidden.Seconds()))})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exportedMessages collects the messages and the states of an export.
type exportedMessages struct {
	messages []string
	states   map[string]provider.InstanceState
}

func (x *exportedMessages) Instance(_ context.Context, s *provider.InstanceState, _ []history.Event) error {
	x.states[s.Instance.InstanceID] = *s
	return nil
}

func (x *exportedMessages) Activity(context.Context, provider.TaskMessage) error { return nil }

func (x *exportedMessages) Message(_ context.Context, m provider.TaskMessage) error {
	x.messages = append(x.messages, m.Event.Type().String()+" for "+m.Target.InstanceID)
	return nil
}

// isHarmless reports whether an exported message has no effect on an instance without steps.
func isHarmless(message string) bool { return strings.HasPrefix(message, "GenericEvent for ") }

// The state of an instance must neither stand for a hidden message of another instance, nor make an export
// wait for a message that does not exist.
func TestExport_FindsHiddenMessagesBesideEachState(t *testing.T) {
	t.Parallel()
	const other = "EventRaised for @tally@other"
	for _, hidden := range []struct {
		name     string
		duration time.Duration // zero for no hidden message
		ignore   bool
		want     []string // in addition to the messages of the state
		fails    bool
		took     time.Duration
	}{
		{name: "no hidden message", took: time.Second},
		{name: "a message that appears", duration: time.Minute, want: []string{other}, took: 2 * time.Minute},
		{name: "a message that stays hidden", duration: time.Hour, fails: true, took: 6 * time.Minute},
		{name: "an ignored message that stays hidden", duration: time.Hour, ignore: true, took: 6 * time.Minute},
	} {
		for n, name := range namesOf(storedStates) {
			t.Run(hidden.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					s := storedStates()[n]
					h := importState(t, s)
					if hidden.duration > 0 {
						hide(t, h, hidden.duration)
					}
					got := &exportedMessages{states: map[string]provider.InstanceState{}}
					from := time.Now()
					err := h.Export(t.Context(), got, provider.ExportOptions{IgnoreHidden: hidden.ignore})
					took := time.Since(from)
					if missing, is := errors.AsType[*HiddenError](err); is != hidden.fails || is && missing.Hidden != 1 || !is && err != nil {
						t.Fatalf("error %v, want a hidden message: %v", err, hidden.fails)
					}
					if took > hidden.took {
						t.Errorf("the export took %v, want at most %v", took, hidden.took)
					}
					if exported := got.states[s.state.Instance.InstanceID]; exported.Status != s.state.Status || !exported.CompletedAt.Equal(s.state.CompletedAt) {
						t.Errorf("exported as %v, completed %v; want %v, %v", exported.Status, exported.CompletedAt, s.state.Status, s.state.CompletedAt)
					}
					if hidden.fails {
						return
					}
					if len(s.want) == 0 {
						got.messages = slices.DeleteFunc(got.messages, isHarmless)
					}
					if want := slices.Sorted(slices.Values(slices.Concat(s.want, hidden.want))); !slices.Equal(slices.Sorted(slices.Values(got.messages)), want) {
						t.Errorf("exported %q, want %q", got.messages, want)
					}
				})
			})
		}
	}
}

func namesOf(states func() []storedState) (names []string) {
	for _, s := range states() {
		names = append(names, s.name)
	}
	return names
}
