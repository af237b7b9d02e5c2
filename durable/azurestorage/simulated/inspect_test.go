package simulated_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// inspector checks whether another worker could take over the hub in its present state.
type inspector struct {
	account *azsim.Account
	hub     string

	mu         sync.Mutex
	inProgress map[string]bool // instances whose start has not returned
}

func (in *inspector) starting(id string, now bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.inProgress == nil {
		in.inProgress = map[string]bool{}
	}
	in.inProgress[id] = now
}

// storedMessage has the inspected parts of a queue message.
type storedMessage struct {
	TaskMessage struct {
		Event struct {
			Type            string `json:"$type"`
			EventID         int    `json:"EventId"`
			TaskScheduledID int    `json:"TaskScheduledId"`
			TimerID         int    `json:"TimerId"`
			FireAt          time.Time
		}
		OrchestrationInstance struct {
			InstanceID string `json:"InstanceId"`
		}
	}
	EntityBatch string
	visibleAt   time.Time
	received    int
}

func (m *storedMessage) is(kind, instanceID string) bool {
	return m.TaskMessage.OrchestrationInstance.InstanceID == instanceID &&
		m.TaskMessage.Event.Type == "DurableTask.Core.History."+kind+"Event"
}

// snapshot is the stored state of a hub at one instant.
type snapshot struct {
	messages  []*storedMessage
	histories map[string][]azsim.Row // the events of the current execution, by instance
	sentinels map[string]azsim.Row
	instances map[string]azsim.Row
}

func (in *inspector) snapshot() (*snapshot, error) {
	s := &snapshot{histories: map[string][]azsim.Row{}, sentinels: map[string]azsim.Row{}, instances: map[string]azsim.Row{}}
	rows := in.account.Rows(in.hub + "History")
	for _, r := range rows {
		if r.RowKey == "sentinel" {
			s.sentinels[r.PartitionKey] = r
		}
	}
	for _, r := range rows {
		if r.RowKey != "sentinel" && r.Text("ExecutionId") == s.sentinels[r.PartitionKey].Text("ExecutionId") {
			s.histories[r.PartitionKey] = append(s.histories[r.PartitionKey], r)
		}
	}
	for _, r := range in.account.Rows(in.hub + "Instances") {
		s.instances[r.PartitionKey] = r
	}
	for _, queue := range in.account.Queues() {
		for _, m := range in.account.Messages(queue) {
			stored := &storedMessage{visibleAt: m.VisibleAt, received: m.DequeueCount}
			if err := json.Unmarshal([]byte(m.Text), stored); err != nil {
				return nil, fmt.Errorf("message in %s: %w", queue, err)
			}
			s.messages = append(s.messages, stored)
		}
	}
	return s, nil
}

// look returns what another worker that took over now would be missing.
func (in *inspector) look() (faults []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s, err := in.snapshot()
	if err != nil {
		return []string{err.Error()}
	}
	for id, rows := range s.histories {
		faults = append(faults, s.history(id, rows, in.inProgress[id])...)
	}
	for id, row := range s.instances {
		started := len(s.histories[id]) > 0
		if row.Text("RuntimeStatus") == "Pending" && !started && !in.inProgress[id] && !s.has("ExecutionStarted", id, nil) {
			faults = append(faults, fmt.Sprintf("%s is pending and has no start message", id))
		}
	}
	for _, m := range s.messages {
		if m.received > 0 {
			continue // it may be held back
		}
		due := time.Now()
		if fireAt := m.TaskMessage.Event.FireAt; fireAt.After(due) {
			due = fireAt
		}
		most := 31 * time.Second
		if m.EntityBatch != "" {
			most += 2 * time.Minute // a batch may hide its messages for longer until it is committed
		}
		if hidden := m.visibleAt.Sub(due); hidden > most {
			faults = append(faults, fmt.Sprintf("%s is hidden for %v", m.TaskMessage.Event.Type, hidden))
		}
	}
	slices.Sort(faults)
	return faults
}

func (s *snapshot) has(kind, instanceID string, match func(m *storedMessage) bool) bool {
	return slices.ContainsFunc(s.messages, func(m *storedMessage) bool { return m.is(kind, instanceID) && (match == nil || match(m)) })
}

// history returns what is missing to continue the history of an instance. starting means that its
// start has not returned. Such an instance may have ended while its row is Pending: no caller knows
// of it, and a worker repairs the row within minutes.
func (s *snapshot) history(id string, rows []azsim.Row, starting bool) (faults []string) {
	answered := map[string]bool{}
	ended := false
	for i, r := range rows {
		if want := fmt.Sprintf("%016X", i); r.RowKey != want {
			faults = append(faults, fmt.Sprintf("history of %s: row %s in place of %s", id, r.RowKey, want))
		}
		switch kind := r.Text("EventType"); kind {
		case "TaskCompleted", "TaskFailed", "SubOrchestrationInstanceCompleted":
			answered[r.Columns["TaskScheduledId"]] = true
		case "TimerFired":
			answered[r.Columns["TimerId"]] = true
		case "ExecutionCompleted":
			ended = true
		}
	}
	status := s.instances[id].Text("RuntimeStatus")
	if ended {
		hasMessage := slices.ContainsFunc(s.messages, func(m *storedMessage) bool { return m.TaskMessage.OrchestrationInstance.InstanceID == id })
		if (status == "Pending" && !starting || status == "Running" || status == "") && !hasMessage {
			faults = append(faults, fmt.Sprintf("%s has ended, its row says %q, and no message will repair the row", id, status))
		}
		return faults
	}
	open := openSteps(rows)
	if len(open) > 0 && status != "Pending" && !s.has("Generic", id, nil) && !s.has("ExecutionStarted", id, nil) {
		faults = append(faults, fmt.Sprintf("%s has open steps, and no message wakes it", id))
	}
	for _, r := range rows {
		if slices.Contains(open, r.Columns["EventId"]) {
			continue
		}
		if what := s.unanswered(id, r); !answered[r.Columns["EventId"]] && what != "" {
			faults = append(faults, fmt.Sprintf("history of %s has %s %s, and %s", id, r.Text("EventType"), r.Columns["EventId"], what))
		}
	}
	return faults
}

// openSteps returns the numbers of the recorded steps without a completion, and "" if the last episode left
// steps unrecorded.
func openSteps(rows []azsim.Row) (open []string) {
	for _, r := range rows {
		if number, ok := strings.CutPrefix(r.Text("Data"), "durable.Step started: "); ok {
			open = append(open, number)
		}
		open = slices.DeleteFunc(open, func(number string) bool { return number == "" || number == r.Columns["TaskScheduledId"] })
		if r.Text("EventType") == "OrchestratorCompleted" && r.Columns["IsPlayed"] == "true" {
			open = append(open, "")
		}
	}
	return open
}

// unanswered returns what is missing to complete an event that has no completion in the history, or
// "".
func (s *snapshot) unanswered(id string, r azsim.Row) string {
	number := r.Columns["EventId"]
	answer := func(m *storedMessage) bool { return fmt.Sprint(m.TaskMessage.Event.TaskScheduledID) == number }
	switch r.Text("EventType") {
	case "TaskScheduled":
		scheduled := func(m *storedMessage) bool { return fmt.Sprint(m.TaskMessage.Event.EventID) == number }
		if !s.has("TaskScheduled", id, scheduled) && !s.has("TaskCompleted", id, answer) {
			return "there is neither a work item nor a result"
		}
	case "TimerCreated":
		fired := func(m *storedMessage) bool { return fmt.Sprint(m.TaskMessage.Event.TimerID) == number }
		if !s.has("TimerFired", id, fired) {
			return "no message will fire it"
		}
	case "SubOrchestrationInstanceCreated":
		child := r.Text("InstanceId")
		past := s.histories[child]
		isRunning := len(past) > 0 && !slices.ContainsFunc(past, func(r azsim.Row) bool { return r.Text("EventType") == "ExecutionCompleted" })
		if !isRunning && !s.has("ExecutionStarted", child, nil) && !s.has("SubOrchestrationInstanceCompleted", id, answer) {
			return "the child neither starts nor runs nor has it sent its result"
		}
	}
	return ""
}

// The inspector finds each kind of fault.
func TestInspector_FindsEachFault(t *testing.T) {
	t.Parallel()
	row := func(kind, id string, more ...string) azsim.Row {
		r := azsim.Row{RowKey: "0000000000000000", Columns: map[string]string{"EventType": `"` + kind + `"`, "EventId": id}}
		for i := 0; i+1 < len(more); i += 2 {
			r.Columns[more[i]] = `"` + more[i+1] + `"`
		}
		return r
	}
	for name, rows := range map[string][]azsim.Row{
		"there is neither a work item nor a result": {row("TaskScheduled", "0")},
		"no message will fire it":                   {row("TimerCreated", "0")},
		"the child neither starts":                  {row("SubOrchestrationInstanceCreated", "0", "InstanceId", "c")},
		"no message will repair the row":            {row("ExecutionCompleted", "0")},
		"in place of 0000000000000001":              {row("OrchestratorStarted", "-1"), row("OrchestratorCompleted", "-1")},
		"no message wakes it":                       {row("GenericEvent", "-1", "Data", "durable.Step started: 0")},
	} {
		s := &snapshot{}
		if faults := s.history("i", rows, false); len(faults) != 1 || !strings.Contains(faults[0], name) {
			t.Errorf("found %q, want one fault with %q", faults, name)
		}
	}
}
