package entity

import (
	"encoding/json"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Message is a message that an entity sends: an event, or the start of an orchestration.
type Message struct {
	Target history.OrchestrationInstance
	Name   string // the name of the event
	Input  *string
	Start  *Start // nil for an event; otherwise Target is the execution to start
	// Sender is the execution of the entity that starts an orchestration. Number distinguishes
	// its messages.
	Sender string
	Number int
}

func writeMessage(w *writer, m Message) {
	w.open()
	w.str("to", m.Target.InstanceID)
	w.filled("execution", m.Target.ExecutionID)
	if a := m.Start; a != nil {
		w.str("start", a.Name)
		w.filled("version", a.Version)
		if len(a.Tags) > 0 {
			tags, _ := json.Marshal(a.Tags) // strings can be encoded, and keys are sorted
			w.raw("tags", string(tags))
		}
		if !a.Due.IsZero() {
			w.time("due", a.Due)
		}
		w.filled("sender", m.Sender)
		w.int("number", m.Number)
	} else {
		w.str("event", m.Name)
	}
	w.optional("input", m.Input)
	w.close()
}

// wireMessage is the JSON form of a Message.
type wireMessage struct {
	To        string            `json:"to"`
	Execution string            `json:"execution"`
	Event     string            `json:"event"`
	Start     *string           `json:"start"`
	Version   string            `json:"version"`
	Tags      map[string]string `json:"tags"`
	Due       stamp             `json:"due"`
	Sender    string            `json:"sender"`
	Number    int               `json:"number"`
	Input     *string           `json:"input"`
}

func messagesOf(wire []wireMessage) []Message {
	var all []Message
	for i := range wire {
		all = append(all, wire[i].message())
	}
	return all
}

func (w *wireMessage) message() Message {
	m := Message{
		Target: history.OrchestrationInstance{InstanceID: w.To, ExecutionID: w.Execution},
		Name:   w.Event, Input: w.Input, Sender: w.Sender, Number: w.Number,
	}
	if w.Start != nil {
		m.Start = &Start{Name: *w.Start, Version: w.Version, InstanceID: w.To, Input: w.Input, Tags: w.Tags, Due: w.Due.In(time.UTC)}
	}
	return m
}
