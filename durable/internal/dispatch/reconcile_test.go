package dispatch_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

var (
	here     = history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e1"}
	before   = history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e0"}
	anywhere = history.OrchestrationInstance{InstanceID: "i"}
)

var another = history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e9"}

// childStart returns the start of a child of p.
func childStart(p *history.ParentInstance, child history.OrchestrationInstance) *history.ExecutionStarted {
	return &history.ExecutionStarted{Instance: child, Name: "O", Parent: p}
}

func startOfHere() *history.ExecutionStarted {
	return &history.ExecutionStarted{Instance: here, Name: "O"}
}

// The rules of DurableTask.Core/TaskOrchestrationDispatcher.cs, ReconcileMessagesWithState. The
// numbers refer to the comment of reconcile.
func TestReconcile_FollowsDurableTask(t *testing.T) {
	started := []history.Event{&history.OrchestratorStarted{}, startOfHere(), &history.OrchestratorCompleted{}}
	to := func(target history.OrchestrationInstance, e history.Event) provider.TaskMessage {
		return provider.TaskMessage{Event: e, Target: target}
	}
	task := &history.TaskCompleted{TaskScheduledID: 0}
	raised := &history.EventRaised{Name: "go"}
	start := startOfHere()
	blank := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "  "}

	for _, test := range []struct {
		name     string
		past     []history.Event
		messages []provider.TaskMessage
		begins   bool
		kept     []history.Event
		dropped  []string
		err      bool
	}{
		{
			name: "a new execution takes its start and the following messages", begins: true,
			messages: []provider.TaskMessage{to(here, start), to(anywhere, raised), to(here, task)},
			kept:     []history.Event{start, raised, task},
		},
		{
			name: "an execution takes messages for it, and messages without an execution", past: started, begins: true,
			messages: []provider.TaskMessage{to(here, task), to(anywhere, raised), to(blank, raised)},
			kept:     []history.Event{task, raised, raised},
		},
		{
			name: "duplicates are kept", past: started, begins: true,
			messages: []provider.TaskMessage{to(here, task), to(here, task)},
			kept:     []history.Event{task, task},
		},
		{
			name:     "1: a history without ExecutionStarted takes no messages",
			past:     []history.Event{&history.OrchestratorStarted{}, &history.TaskScheduled{}},
			messages: []provider.TaskMessage{to(here, start), to(here, task)},
			dropped: []string{
				"ExecutionStarted: the history has no ExecutionStarted", "TaskCompleted: the history has no ExecutionStarted",
			},
		},
		{
			name:     "2: a batch for a new execution without a start in front is dropped",
			messages: []provider.TaskMessage{to(here, task), to(here, start)},
			dropped:  []string{"TaskCompleted: no such instance", "ExecutionStarted: no such instance"},
		},
		{
			name: "3: a second start in the batch is dropped", begins: true,
			messages: []provider.TaskMessage{to(here, start), to(here, startOfHere())},
			kept:     []history.Event{start},
			dropped:  []string{"ExecutionStarted: duplicate start"},
		},
		{
			name: "3: a start of a started execution is dropped", past: started, begins: true,
			messages: []provider.TaskMessage{to(here, start), to(here, task)},
			kept:     []history.Event{task},
			dropped:  []string{"ExecutionStarted: duplicate start"},
		},
		{
			name: "3: a start of another child is refused", past: started, begins: true,
			messages: []provider.TaskMessage{to(another, childStart(parent, another)), to(here, task)},
			kept:     []history.Event{task},
			dropped:  []string{"ExecutionStarted: start of a child whose ID belongs to a running instance; its parent is notified"},
		},
		{
			name: "3: a start of the same child, which has continued as new, is dropped", begins: true,
			past:     []history.Event{&history.OrchestratorStarted{}, childStart(parent, here), &history.OrchestratorCompleted{}},
			messages: []provider.TaskMessage{to(another, childStart(parent, another)), to(here, childStart(parent, here))},
			dropped:  []string{"ExecutionStarted: duplicate start", "ExecutionStarted: duplicate start"},
		},
		{
			name: "5: an instance that has ended does not refuse a child with its ID", past: append(started[:2:2], &history.ExecutionCompleted{}), err: true,
			messages: []provider.TaskMessage{to(another, childStart(parent, another))},
		},
		{
			name: "4: a message for another execution is dropped", past: started, begins: true,
			messages: []provider.TaskMessage{to(before, task), to(here, task)},
			kept:     []history.Event{task},
			dropped:  []string{"TaskCompleted: it is for execution e0; the current execution is e1"},
		},
		{
			name: "5: an instance that has ended takes no messages", begins: false,
			past: append(started[:2:2], &history.ExecutionCompleted{Status: history.Terminated}, &history.OrchestratorCompleted{},
				&history.OrchestratorStarted{}, &history.OrchestratorCompleted{}),
			messages: []provider.TaskMessage{to(anywhere, raised)},
			dropped:  []string{"EventRaised: the instance is Terminated"},
		},
		{
			name: "a message without an instance is an error", past: started, err: true,
			messages: []provider.TaskMessage{to(history.OrchestrationInstance{}, raised)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			begins, kept, dropped, err := dispatch.Reconcile(test.past, test.messages)
			if (err != nil) != test.err {
				t.Fatalf("error is %v, want one: %v", err, test.err)
			}
			if err != nil {
				return
			}
			if (begins != nil) != test.begins {
				t.Errorf("start is %v, want one: %v", begins, test.begins)
			}
			if diff := cmp.Diff(test.kept, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.dropped, dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		})
	}
}
