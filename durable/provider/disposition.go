package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// Disposition is what becomes of a message for an instance.
type Disposition int

const (
	// Deliver means that the message is dispatched.
	Deliver Disposition = iota
	// Begin means that the message, a start, is dispatched and begins an execution,
	// in the place of the current one if there is one.
	Begin
	// Wait means that the message is kept until the instance has got further.
	Wait
	// Foreign means that the message is for an execution that is not the current
	// one. It can be discarded if no checkpoint that begins that execution can be
	// under way.
	Foreign
	// Discard means that the message is deleted.
	Discard
)

// Progress is what is stored of an instance, as far as it decides what becomes of
// messages. The zero value is that of an instance that is not known.
type Progress struct {
	Known     bool   // the hub has a state of the instance
	Execution string // ID of the current execution
	Status    history.RuntimeStatus
	Begun     bool // the current execution has a history
	// Starting means that the current execution has not begun, and that its start
	// is dispatched before the message.
	Starting bool
	// History reads the history of the current execution. It is called at most once,
	// and only if that has begun.
	History func() ([]history.Event, error)
	// Scheduled reports whether the history has the event with an ID that schedules
	// something. If it is nil, the history is read to find out.
	Scheduled func(id int) bool

	past    []history.Event
	read    bool
	actions map[int]bool // events of past that schedule something, by ID
}

// Disposition decides what becomes of a message for an instance.
//
// A start of the current execution begins that, once. A start that no parent sent
// is void if another execution is current: a client has replaced it. The start of
// a child
//
//  1. waits while another execution is about to begin,
//  2. goes to an execution that runs, and the engine refuses it,
//  3. takes the place of an execution that has ended, unless that is of the same
//     child.
//
// Any other message
//
//  1. goes to an entity, which begins with its first message,
//  2. is discarded if the instance is not known or has ended,
//  3. is foreign if it names another execution than the current one,
//  4. waits until the execution begins,
//  5. if it is a completion, waits until the history has the event that scheduled
//     it (DurableTask.AzureStorage/Messaging/OrchestrationSession.cs,
//     IsOutOfOrderMessage). A completion is trusted if it was stored in one
//     transaction with that event.
//
// The error is that of reading the history.
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
		return Foreign, nil
	case completes && !p.Begun, !p.Begun && !p.Starting:
		return Wait, nil
	case !completes, trusted:
		return Deliver, nil
	}
	has := p.Scheduled
	if has == nil {
		if err := p.load(); err != nil {
			return Wait, err
		}
		has = func(id int) bool { return p.actions[id] }
	}
	if !has(scheduled) {
		return Wait, nil
	}
	return Deliver, nil
}

func (p *Progress) ofStart(start *history.ExecutionStarted) (Disposition, error) {
	same := p.Execution == start.Instance.ExecutionID
	switch {
	case !p.Known:
		return Begin, nil
	case same && (p.Begun || p.Status.IsTerminal()):
		return Discard, nil
	case same:
		return Begin, nil
	case start.Parent == nil:
		return Discard, nil
	case p.Status.IsTerminal():
		if !p.Begun {
			return Begin, nil
		}
		err := p.load()
		if err == nil && start.IsSameChild(history.StartOf(p.past)) {
			return Discard, nil
		}
		return Begin, err
	case !p.Begun:
		return Wait, nil
	}
	return Deliver, nil
}

// load reads the history unless that was done.
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
