package provider

import (
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// EntityDueTime returns the delivery time of a message to an entity, which is part of the
// event's name. ok is false if the message is due immediately. It follows
// DurableTask.Core/Common/Entities.cs, IsDelayedEntityMessage.
func EntityDueTime(m TaskMessage) (due time.Time, ok bool) {
	e, isEvent := m.Event.(*history.EventRaised)
	if !isEvent || !history.IsEntity(m.Target.InstanceID) {
		return time.Time{}, false
	}
	text, isTimed := strings.CutPrefix(e.Name, "op@")
	if !isTimed {
		return time.Time{}, false
	}
	due, err := time.Parse(time.RFC3339Nano, text)
	if err != nil { // a time without a zone is in UTC
		due, err = time.Parse("2006-01-02T15:04:05.999999999", text)
	}
	return due, err == nil
}

// DueTime returns the delivery time of a message. Zero means immediately. It follows
// DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay.
func DueTime(m TaskMessage) time.Time {
	switch e := m.Event.(type) {
	case *history.TimerFired:
		return e.FireAt
	case *history.ExecutionStarted:
		return e.ScheduledStart
	}
	due, _ := DelayedUntil(m)
	return due
}

// DelayedUntil returns the delivery time of a delayed signal to an entity, or of a message of
// [WakePolls]. ok is false for all other messages.
func DelayedUntil(m TaskMessage) (due time.Time, ok bool) {
	if due, ids := m.WokenPolls(); ids != nil {
		return due, true
	}
	return EntityDueTime(m)
}
