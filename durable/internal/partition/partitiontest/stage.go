// Package partitiontest drives partitions, and hubs with partitions, in tests.
package partitiontest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Stage is a running hub and the test that drives it.
type Stage struct {
	*testing.T
	Hub    provider.Provider
	starts sync.Map // the number of starts (*atomic.Int64) by instance ID; each start gets its own execution ID
}

// Must fails the test immediately if err is not nil.
func (s *Stage) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Start starts an instance and returns it.
func (s *Stage) Start(id string) history.OrchestrationInstance {
	s.Helper()
	return s.StartAt(id, time.Time{})
}

// StartAt starts an instance at a time; immediately if the time is zero.
func (s *Stage) StartAt(id string, at time.Time) history.OrchestrationInstance {
	s.Helper()
	execution := "execution of " + id
	starts, _ := s.starts.LoadOrStore(id, new(atomic.Int64))
	if n := starts.(*atomic.Int64).Add(1); n > 1 {
		execution = fmt.Sprintf("execution %d of %s", n, id)
	}
	start := &history.ExecutionStarted{
		Header: history.NewHeader(time.Now()), Name: "Orchestrator", ScheduledStart: history.TruncateToTicks(at),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: execution},
	}
	s.Must(s.Hub.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: start.Instance}, nil))
	return start.Instance
}

// Raise sends an external event to an instance.
func (s *Stage) Raise(id, name string) {
	s.Helper()
	e := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name}
	s.Must(s.Hub.Send(s.Context(), provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: id}}))
}

// Next returns the next orchestration work item.
func (s *Stage) Next() *provider.OrchestrationWorkItem {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	item, err := s.Hub.NextOrchestration(ctx)
	s.Must(err)
	return item
}

// AwaitActivity returns the next activity work item.
func (s *Stage) AwaitActivity() *provider.ActivityWorkItem {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	a, err := s.Hub.NextActivity(ctx)
	s.Must(err)
	return a
}

// CheckpointOf returns a checkpoint that consumes an item's messages and appends the decided
// events, with the activities and timers that they schedule.
func CheckpointOf(item *provider.OrchestrationWorkItem, decided ...history.Event) *provider.Checkpoint {
	cp := &provider.Checkpoint{Instance: item.Instance}
	for _, m := range item.Messages {
		cp.NewEvents = append(cp.NewEvents, m.Event)
	}
	for _, e := range decided {
		cp.NewEvents = append(cp.NewEvents, e)
		switch e := e.(type) {
		case *history.TaskScheduled:
			cp.Activities = append(cp.Activities, provider.TaskMessage{Event: e, Target: item.Instance})
		case *history.TimerCreated:
			fired := &history.TimerFired{Header: history.NewHeader(time.Now()), TimerID: e.EventID, FireAt: e.FireAt}
			cp.Timers = append(cp.Timers, provider.TaskMessage{Event: fired, Target: item.Instance})
		}
	}
	return cp
}

// Finish commits the checkpoint of [CheckpointOf] and releases the session.
func (s *Stage) Finish(item *provider.OrchestrationWorkItem, decided ...history.Event) {
	s.Helper()
	s.Must(item.Session.Commit(s.Context(), CheckpointOf(item, decided...)))
	s.Must(item.Session.Release(s.Context()))
}

// Scheduled returns an event that schedules an activity.
func Scheduled(id int) *history.TaskScheduled {
	return &history.TaskScheduled{Header: history.Header{EventID: id}, Name: "Activity"}
}

// Ended returns the event of an orchestration that completed successfully.
func Ended() *history.ExecutionCompleted {
	return &history.ExecutionCompleted{Header: history.Header{EventID: 100}, Status: history.Completed}
}

// ResultOf returns the successful result of an activity.
func ResultOf(id int) *history.TaskCompleted {
	return &history.TaskCompleted{Header: history.NewHeader(time.Now()), TaskScheduledID: id}
}
