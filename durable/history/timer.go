package history

import "time"

// TimerCreated records that the orchestrator created a timer.
type TimerCreated struct {
	Header
	FireAt time.Time // UTC
}

// TimerFired says that the timer created by event TimerID is due. As a message
// it is delivered no earlier than FireAt.
type TimerFired struct {
	Header
	TimerID int
	FireAt  time.Time // UTC
}

// Type returns [TypeTimerCreated].
func (*TimerCreated) Type() EventType { return TypeTimerCreated }

// Type returns [TypeTimerFired].
func (*TimerFired) Type() EventType { return TypeTimerFired }
