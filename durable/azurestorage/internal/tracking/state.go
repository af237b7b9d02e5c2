package tracking

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

// A mark is what a sentinel says of the tracking records.
type mark struct {
	ExecutionID string
	// Events is how many of the history's first events are recorded for certain.
	Events int
	// Before is what to record of the execution before, if that is not certain:
	// messages to the tracking queue, compressed, as Base64.
	Before string `json:",omitempty"`
}

// column is the column of a sentinel that has a mark as JSON. .NET
// takes no notice of it.
const column = "Tracking"

// maxMarkBytes is how long the text of a mark may be: as many characters as
// a column can have.
const maxMarkBytes = 32_000

// errMarkTooLong says that a mark does not fit into a column.
var errMarkTooLong = fmt.Errorf("longer than %d bytes", maxMarkBytes)

// encode returns the text of a mark that keeps rows of the execution before.
func (m mark) encode(before []wire.Row) (string, error) {
	if len(before) > 0 {
		packed, err := wire.Compress([]byte(wire.RowsJSON(before)))
		if err != nil {
			return "", err
		}
		m.Before = base64.StdEncoding.EncodeToString(packed)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	if len(text) > maxMarkBytes {
		return "", errMarkTooLong
	}
	return string(text), nil
}

// decodeMark reads the column of a sentinel, of which other programs may
// have kept an old one.
func decodeMark(text string) (m mark, before []wire.Row, err error) {
	if text == "" {
		return mark{}, nil, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	if m.Before == "" {
		return m, nil, nil
	}
	packed, err := base64.StdEncoding.DecodeString(m.Before)
	if err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	raw, err := wire.Decompress(packed)
	if err == nil {
		before, err = wire.DecodeRows(raw)
	}
	if err != nil {
		return mark{}, nil, fmt.Errorf("column %s: %w", column, err)
	}
	return m, before, nil
}

// encodeWhatFits returns the text of a mark that keeps rows of the execution
// before: whole, or without their texts, or, of more than any process takes at
// once unless it is configured to, the first and the last. What is left out is
// missing among the records only if the worker dies before it has sent it.
func (m mark) encodeWhatFits(before []wire.Row) (string, error) {
	text, err := m.encode(before)
	if !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	short := withoutTexts(before)
	if text, err = m.encode(short); !errors.Is(err, errMarkTooLong) {
		return text, err
	}
	return m.encode(slices.Concat(short[:1], short[len(short)-rowsOfEnd:]))
}

// rowsOfEnd is how many rows tell that an execution continued as new.
const rowsOfEnd = 3

// withoutTexts returns rows without what makes them long.
func withoutTexts(rows []wire.Row) []wire.Row {
	short := make([]wire.Row, len(rows))
	for i, row := range rows {
		short[i] = wire.Row{PartitionKey: row.PartitionKey, RowKey: row.RowKey}
		for _, p := range row.Properties {
			if p.Edm != wire.EDMString || len(p.Text) <= maxShortText {
				short[i].Properties = append(short[i].Properties, p)
			}
		}
	}
	return short
}

// maxShortText is how long a text may be that withoutTexts keeps.
const maxShortText = 40
