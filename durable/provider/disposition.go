package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// Disposition is the action of a provider for a received message to an instance.
type Disposition int

const (
	// Deliver dispatches the message.
	Deliver Disposition = iota
	// StartExecution dispatches the message, a start, which begins an execution and replaces
	// the current execution if the instance has one.
	StartExecution
	// HoldBack keeps the message until the instance has progressed.
	HoldBack
	// OtherExecution means that the message is for an execution other than the current one. It
	// can be discarded unless a checkpoint that begins that execution may be in flight.
	OtherExecution
	// Discard deletes the message.
	Discard
)

// Progress is the stored state of an instance that decides the disposition of its messages. The
// zero value is the progress of an unknown instance.
type Progress struct {
	Known      bool   // the hub has a state for the instance
	Execution  string // ID of the current execution
	Status     history.RuntimeStatus
	HasHistory bool // the current execution has a history
	// Starting means that the current execution has no history yet and that its start is
	// dispatched before the message.
	Starting bool
	// History reads the history of the current execution. It is called at most once, and only
	// for an execution that has a history.
	History func() ([]history.Event, error)
	// Scheduled reports whether the history contains the event with this ID that schedules
	// work. If Scheduled is nil, Disposition reads the history instead.
	Scheduled func(id int) bool

	past    []history.Event
	read    bool
	actions map[int]bool // IDs of the events in past that schedule work
}

// Disposition returns the disposition of a message for the instance. Its only source of errors is
// History.
//
// A start of the current execution begins it once. Do not call Disposition for a start that the
// provider keeps to wake the instance while steps run. If a start has no parent and names
// another execution, it is discarded, because a client has replaced the execution that it
// names. The start of a child
//
//  1. waits while another execution is about to begin,
//  2. is delivered to a running execution, where the engine refuses it,
//  3. replaces an execution that has ended, or is discarded if the ended execution belongs to
//     the same child.
//
// Any other message
//
//  1. is delivered if the instance is an entity, which begins with its first message,
//  2. is discarded if the instance is unknown or has ended,
//  3. is for another execution (OtherExecution) if it names one,
//  4. waits until the execution begins,
//  5. if it is a completion, waits until the history contains the event that scheduled the
//     work (DurableTask.AzureStorage/Messaging/OrchestrationSession.cs, IsOutOfOrderMessage).
//     A trusted completion skips this check: it was stored in one transaction with that event.
func (p *Progress) Disposition(m TaskMessage, trusted bool) (Disposition, error) {
	if start, ok := m.Event.(*history.ExecutionStarted); ok {
		return p.ofStart(start)
	}
	scheduled, completes := history.Completes(m.Event)
	switch {
	case history.IsEntity(m.Target.InstanceID):
		return Deliver, nil
	case !p.Known, p.Status.IsTerminal():
		return Discard, nil
	case m.Target.ExecutionID != "" && m.Target.ExecutionID != p.Execution:
		return OtherExecution, nil
	case completes && !p.HasHistory, !p.HasHistory && !p.Starting:
		return HoldBack, nil
	case !completes, trusted:
		return Deliver, nil
	}
	has := p.Scheduled
	if has == nil {
		if err := p.load(); err != nil {
			return HoldBack, err
		}
		has = func(id int) bool { return p.actions[id] }
	}
	if !has(scheduled) {
		return HoldBack, nil
	}
	return Deliver, nil
}

func (p *Progress) ofStart(start *history.ExecutionStarted) (Disposition, error) {
	same := p.Execution == start.Instance.ExecutionID
	switch {
	case !p.Known:
		return StartExecution, nil
	case same && (p.HasHistory || p.Status.IsTerminal()):
		return Discard, nil
	case same:
		return StartExecution, nil
	case start.Parent == nil:
		return Discard, nil
	case p.Status.IsTerminal():
		if !p.HasHistory {
			return StartExecution, nil
		}
		err := p.load()
		if err == nil && start.IsSameChild(history.StartOf(p.past)) {
			return Discard, nil
		}
		return StartExecution, err
	case !p.HasHistory:
		return HoldBack, nil
	}
	return Deliver, nil
}

// load reads the history once.
func (p *Progress) load() (err error) {
	if p.read {
		return nil
	}
	if p.past, err = p.History(); err != nil {
		return err
	}
	p.read, p.actions = true, make(map[int]bool)
	for _, e := range p.past {
		if id := e.Head().EventID; id != history.NoEventID {
			p.actions[id] = true
		}
	}
	return nil
}
