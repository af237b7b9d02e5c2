package replay_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// busy is an orchestrator that uses all features of an execution.
func busy(x *replay.Execution, _ *string) (*string, error) {
	for round := range 6 {
		a, b, c, e, tm := new(replay.Future), new(replay.Future), new(replay.Future), new(replay.Future), new(replay.Future)
		x.ScheduleTask(a, "A", nil)
		x.CreateSubOrchestration(c, "C", "", nil)
		x.SendEvent("to", "E", nil)
		x.WaitEvent(e, "E")
		x.CreateTimer(tm, x.Now().Add(time.Duration(round)*4*24*time.Hour))
		x.Branch(b, func() {
			f := new(replay.Future)
			x.ScheduleTask(f, "B", nil)
			f.Await()
			if x.AwaitAny([]*replay.Future{a, e}) == 1 {
				x.SetCustomStatus(new("1"))
			}
		})
		switch x.AwaitAny([]*replay.Future{a, e, tm, c}) {
		case 0:
			b.Await()
		case 1:
			col := x.Collect([]*replay.Future{a, tm, b})
			for {
				i, ok := col.Next()
				if !ok || i == 2 {
					break
				}
			}
			col.Stop()
		case 2:
			e.Await()
			if round == 3 {
				return nil, x.ContinueAsNew(nil)
			}
			panic("in round")
		}
	}
	return new("end"), nil
}

// readEvents decodes a history and the events of episodes from bytes. The first element is the
// history.
func readEvents(data []byte) (episodes [][]history.Event) {
	var now []history.Event
	at := replaytest.Epoch
	for len(data) >= 2 {
		op, id := data[0], int(int8(data[1]))
		data = data[2:]
		name := string(rune('A' + id&7))
		at = at.Add(time.Duration(id) * time.Hour)
		h := history.Header{EventID: id, Timestamp: at, IsPlayed: op&64 != 0}
		switch op % 23 {
		case 0:
			now = append(now, &history.OrchestratorStarted{Header: h})
		case 1:
			now = append(now, &history.OrchestratorCompleted{Header: h})
		case 2:
			now = append(now, &history.ExecutionStarted{Header: h, Name: name})
		case 3:
			now = append(now, &history.TaskScheduled{Header: h, Name: name})
		case 4:
			now = append(now, &history.TaskCompleted{Header: h, TaskScheduledID: id})
		case 5:
			now = append(now, &history.TaskFailed{Header: h, TaskScheduledID: id})
		case 6:
			now = append(now, &history.TimerCreated{Header: h})
		case 7:
			now = append(now, &history.TimerFired{Header: h, TimerID: id})
		case 8:
			now = append(now, &history.SubOrchestrationInstanceCreated{Header: h, Name: name})
		case 9:
			now = append(now, &history.SubOrchestrationInstanceCompleted{Header: h, TaskScheduledID: id})
		case 10:
			now = append(now, &history.SubOrchestrationInstanceFailed{Header: h, TaskScheduledID: id})
		case 11:
			now = append(now, &history.EventSent{Header: h, Name: name})
		case 12, 13:
			now = append(now, &history.EventRaised{Header: h, Name: name})
		case 14:
			now = append(now, &history.GenericEvent{Header: h})
		case 15:
			now = append(now, &history.HistoryState{Header: h})
		case 16:
			now = append(now, &history.ExecutionSuspended{Header: h})
		case 17:
			now = append(now, &history.ExecutionResumed{Header: h})
		case 18:
			now = append(now, &history.ExecutionTerminated{Header: h})
		case 19:
			now = append(now, &history.ExecutionCompleted{Header: h})
		case 20:
			now = append(now, &history.ExecutionRewound{Header: h})
		case 21:
			now = append(now, &history.ContinueAsNew{Header: h})
		case 22:
			episodes = append(episodes, now)
			now = nil
		}
	}
	return append(episodes, now)
}

// FuzzExecution replays histories that no engine wrote. Every outcome must be valid.
func FuzzExecution(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 3, 0, 8, 1, 11, 2, 6, 3, 3, 4, 1, 0, 22, 0, 0, 0, 4, 0})
	f.Add([]byte{22, 0, 0, 0, 2, 0, 22, 0, 0, 1, 12, 4, 22, 0, 7, 3, 18, 0, 17, 0})
	f.Add([]byte{22, 0, 2, 0, 22, 0, 7, 3, 22, 0, 16, 0, 13, 4, 17, 0})
	f.Add([]byte{0, 0, 2, 0, 3, 1, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		episodes := readEvents(data)
		x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, busy)
		defer x.Close()
		past, last, ended := episodes[0], -1, false
		for i, fresh := range append(episodes[1:], nil) {
			if i > 0 {
				past = nil
			}
			got := x.Episode(past, fresh)
			if ended && len(got.Actions) > 0 {
				t.Fatalf("decided after the end: %s", replaytest.Describe(got.Actions))
			}
			for j, a := range got.Actions {
				if a.ActionID() <= last {
					t.Fatalf("action number %d follows %d", a.ActionID(), last)
				}
				last = a.ActionID()
				c, ok := a.(*replay.Complete)
				if !ok {
					continue
				}
				ended = true
				if j != len(got.Actions)-1 {
					t.Fatalf("the end is not last: %s", replaytest.Describe(got.Actions))
				}
				if (c.Failure != nil) != (c.Status == history.Failed) || c.Failure != nil && (c.Failure.ErrorMessage == "" || *c.Result != c.Failure.ErrorMessage) {
					t.Fatalf("inconsistent end: %+v", c)
				}
			}
		}
	})
}
