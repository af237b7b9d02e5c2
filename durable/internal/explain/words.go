// Package explain compares an instance's history with its orchestrator's code and describes in
// words where they differ and what the instance waits for. It replays in memory and changes
// nothing.
package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Action describes an action in words.
func Action(a replay.Action) string {
	switch a := a.(type) {
	case nil:
		return "nothing"
	case *replay.ScheduleTask:
		return fmt.Sprintf("activity %s with input %s", a.Name, Payload(a.Input))
	case *replay.RunStep:
		return "step " + a.Name
	case *replay.CreateTimer:
		return "timer until " + Time(a.FireAt)
	case *replay.CreateSubOrchestration:
		if a.InstanceID == "" {
			return fmt.Sprintf("sub-orchestration %s with input %s", a.Name, Payload(a.Input))
		}
		return fmt.Sprintf("sub-orchestration %s %q with input %s", a.Name, a.InstanceID, Payload(a.Input))
	case *replay.SendEvent:
		if history.IsEntity(a.InstanceID) {
			return fmt.Sprintf("%s to entity %q", Request(a.Name, a.Input), a.InstanceID)
		}
		return fmt.Sprintf("event %s for instance %q with payload %s", a.Name, a.InstanceID, Payload(a.Input))
	case *replay.Complete:
		return fmt.Sprintf("the end: %s with %s", a.Status, Payload(a.Result))
	default:
		return fmt.Sprintf("%+v", a)
	}
}

// Request describes a request to an entity in words.
func Request(name string, input *string) string {
	r, err := entity.DecodeRequest(input)
	switch {
	case entity.IsRelease(name):
		return "a release of its lock"
	case err != nil || !strings.HasPrefix(name, "op"):
		return fmt.Sprintf("event %s with payload %s", name, Payload(input))
	case r.IsLock():
		return "a request to lock " + Locks(r.LockSet)
	case r.Signal && !r.Due.IsZero():
		return fmt.Sprintf("a signal, due at %s, for operation %s with input %s", Time(r.Due), r.Operation, Payload(r.Input))
	case r.Signal:
		return fmt.Sprintf("a signal for operation %s with input %s", r.Operation, Payload(r.Input))
	}
	return fmt.Sprintf("a call of operation %s with input %s", r.Operation, Payload(r.Input))
}

// Locks lists the entities of a lock request.
func Locks(ids []entity.ID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = fmt.Sprintf("%q", id)
	}
	return strings.Join(words, " and ")
}

// Payload returns a payload for display, cut to 500 bytes.
func Payload(s *string) string {
	const most = 500
	switch {
	case s == nil:
		return "none"
	case len(*s) > most:
		return fmt.Sprintf("%s… (%d bytes)", (*s)[:most], len(*s))
	default:
		return *s
	}
}

// Time formats a time for messages.
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
