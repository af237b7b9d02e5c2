package tracking

import (
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// State is what is known of the tracking records of an execution.
type State struct {
	Column string // of the sentinel, as it was read

	known  bool       // the following is
	before []wire.Row // of the execution before, which may not have been sent
	at     position
}

// decode reads the column, unless that was done: it says how many of the events of an
// execution are recorded for certain.
func (s *State) decode(of history.OrchestrationInstance, events []history.Event) error {
	if s.known {
		return nil
	}
	m, before, err := decodeMark(s.Column)
	if err != nil {
		return err
	}
	*s = State{known: true, before: before}
	if m.ExecutionID == of.ExecutionID {
		s.advance(of, events[:min(m.Events, len(events))])
	}
	return nil
}

// advance moves on to the end of events, and returns the rows of those that were not
// recorded.
func (s *State) advance(of history.OrchestrationInstance, events []history.Event) (rows []wire.Row) {
	for s.at.events < len(events) {
		rows = s.at.add(rows, of, events[s.at.events])
	}
	return rows
}

// Unsent returns the rows of the events of an execution that may not have been sent, and
// takes them for sent.
func (s *State) Unsent(of history.OrchestrationInstance, events []history.Event) ([]wire.Row, error) {
	if err := s.decode(of, events); err != nil {
		return nil, err
	}
	rows := append(s.before, s.advance(of, events)...)
	s.before = nil
	return rows, nil
}

// A Plan is what to record of a checkpoint. The zero value is that of one of which nothing is.
type Plan struct {
	Rows []wire.Row // to be sent once the checkpoint counts
	Next State      // after that

	mark string // for the sentinel
}

// Plan returns what to record of a checkpoint. What is stored has been sent. The
// checkpoint may continue the execution old as new, with the messages that it takes.
func (s *State) Plan(cp *provider.Checkpoint, old history.OrchestrationInstance, taken []provider.TaskMessage) (*Plan, error) {
	plan := &Plan{Next: State{known: true, at: s.at}}
	m := mark{ExecutionID: cp.Instance.ExecutionID, Events: s.at.events}
	if cp.ContinuedAsNew {
		if s.at.events > 0 {
			plan.Rows = lastEpisode(s.at, old, cp, taken)
		}
		plan.Next.at, m.Events = position{}, 0
	}
	before := plan.Rows
	for _, ev := range cp.NewEvents {
		plan.Rows = plan.Next.at.add(plan.Rows, cp.Instance, ev)
	}
	var err error
	plan.mark, err = m.encodeWhatFits(before)
	return plan, err
}

// Note adds the plan's column of the sentinel to its columns.
func (p *Plan) Note(columns map[string]string) {
	if p != nil {
		columns[column] = p.mark
	}
}

// lastEpisode returns the rows of the episode in which an execution continued as
// new. Its history does not have them: it was replaced by that of the next one.
func lastEpisode(at position, old history.OrchestrationInstance, cp *provider.Checkpoint, taken []provider.TaskMessage) (rows []wire.Row) {
	now := history.NewHeader(cp.NewEvents[0].Head().Timestamp)
	end := &history.ContinueAsNew{}
	end.Header, end.Status = now, history.ContinuedAsNew
	for _, ev := range cp.NewEvents {
		if start, ok := ev.(*history.ExecutionStarted); ok {
			end.Result = start.Input
		}
	}
	rows = at.add(rows, old, &history.OrchestratorStarted{Header: now})
	for _, m := range taken {
		rows = at.add(rows, old, m.Event)
	}
	rows = at.add(rows, old, end)
	return at.add(rows, old, &history.OrchestratorCompleted{Header: now})
}

// NeverStarted returns the rows of an instance that was terminated before it
// began, of which there is no history.
func NeverStarted(row *wire.InstanceRow) (rows []wire.Row) {
	if row == nil || row.State.Status != history.Terminated {
		return nil
	}
	var at position
	now := history.NewHeader(row.State.CompletedAt)
	rows = at.add(rows, row.State.Instance, &history.ExecutionTerminated{Header: now, Reason: row.State.Output})
	return at.add(rows, row.State.Instance, &history.OrchestratorCompleted{Header: now})
}
