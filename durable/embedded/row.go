package embedded

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A row is what the hub keeps of an instance beside its history.
type row struct {
	// number names the current execution in keys. Every execution has one of
	// its own, and later ones have greater ones.
	number    uint64
	execution string
	name      string
	version   string
	status    history.RuntimeStatus

	created time.Time
	// firstCreated is that of the first generation, zero if it is not known.
	firstCreated time.Time
	updated      time.Time // of an execution without history; else its last event's time counts
	completed    time.Time
	scheduled    time.Time

	generation int
	tags       map[string]string

	input, output, custom payload
}

// A payload is a text of an instance that can be large.
type payload struct {
	// apart says that the text is not in the row but has a record of its own.
	apart bool
	text  *string // nil if there is none, or if it is apart and was not read
}

// maxInline is the length up to which a payload stays in the row. Longer ones
// would be written again with every change of the row.
const maxInline = 512

// holds returns p with another text.
func (p payload) holds(text *string) payload {
	return payload{text: text, apart: text != nil && len(*text) > maxInline}
}

func (c *coder) payload(p *payload) {
	c.Bool(&p.apart)
	if !p.apart {
		c.Text(&p.text)
	}
}

func (c *coder) row(r *row) {
	version := c.version(rowVersion)
	c.Uint(&r.number)
	c.String(&r.execution)
	c.String(&r.name)
	c.String(&r.version)
	c.status(&r.status)
	c.Time(&r.created)
	c.Time(&r.updated)
	c.Time(&r.completed)
	c.Time(&r.scheduled)
	c.Int(&r.generation)
	c.Tags(&r.tags)
	c.payload(&r.input)
	c.payload(&r.output)
	c.payload(&r.custom)
	if version >= 2 {
		c.Time(&r.firstCreated)
	}
}

func encodeRow(r *row) ([]byte, error) {
	c := writing(make([]byte, 0, 128))
	c.row(r)
	return c.Buf, c.End()
}

// decodeRow leaves the texts of payloads that are apart nil.
func decodeRow(b []byte) (*row, error) {
	var r row
	c := reading(b)
	c.row(&r)
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("decode instance: %w", err)
	}
	return &r, nil
}

// state returns what the row alone says of an instance.
func (r *row) state(id string) *provider.InstanceState {
	return &provider.InstanceState{
		Instance:    history.OrchestrationInstance{InstanceID: id, ExecutionID: r.execution},
		Name:        r.name,
		Version:     r.version,
		Status:      r.status,
		CreatedAt:   r.created,
		CompletedAt: r.completed,
		ScheduledAt: r.scheduled,
		Generation:  r.generation,
		Tags:        r.tags,

		FirstCreatedAt: r.firstCreated,
	}
}

// begin makes r the row of the execution that start begins
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// SetNewExecutionAsync and UpdateStateAsync).
func (r *row) begin(start *history.ExecutionStarted, status history.RuntimeStatus) {
	if r.number == 0 || r.execution != start.Instance.ExecutionID {
		r.input = r.input.holds(start.Input) // else it is the start that made the row
	}
	r.execution = start.Instance.ExecutionID
	r.name, r.version = start.Name, start.Version
	r.status = status
	r.created, r.updated = start.Timestamp, start.Timestamp
	r.scheduled = start.ScheduledStart
	r.tags = start.Tags
	if start.Generation != nil {
		r.generation = *start.Generation
	}
}

// apply changes r by the events of an episode and reports whether it did. The
// time of change is not in the row, since the history has it
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateInstanceTableAsync).
func (r *row) apply(events []history.Event) (changed bool) {
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			r.begin(e, history.Running)
		case *history.ExecutionCompleted:
			r.end(e.Status, e.Result, e.Timestamp)
			if e.Failure != nil {
				r.output = r.output.holds(new(e.Failure.String()))
			}
		case *history.ExecutionTerminated:
			r.end(history.Terminated, e.Reason, e.Timestamp)
		case *history.ExecutionSuspended:
			r.status, r.output = history.Suspended, r.output.holds(e.Reason)
		case *history.ExecutionResumed:
			r.status, r.output = history.Running, r.output.holds(e.Reason)
		case *history.ContinueAsNew:
			r.status, r.output = history.ContinuedAsNew, r.output.holds(e.Result)
		default:
			continue
		}
		changed = true
	}
	return changed
}

func (r *row) end(status history.RuntimeStatus, output *string, at time.Time) {
	r.status, r.completed = status, at
	r.output = r.output.holds(output)
}
