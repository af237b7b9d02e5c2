package history

import "time"

// TimerCreated records that the orchestrator created a timer.
type TimerCreated struct {
	Header
	FireAt time.Time // UTC
}

// TimerFired reports that a timer is due. The timer was created by the event with EventID TimerID. The
// message is delivered at FireAt or later.
type TimerFired struct {
	Header
	TimerID int
	FireAt  time.Time // UTC
}

// Type returns [TypeTimerCreated].
func (*TimerCreated) Type() EventType { return TypeTimerCreated }

// Type returns [TypeTimerFired].
func (*TimerFired) Type() EventType { return TypeTimerFired }
