package history

// Completes returns the EventID of the action that e completes: an activity, a child or a timer. ok is
// false if e completes no action.
func Completes(e Event) (eventID int, ok bool) {
	switch e := e.(type) {
	case *TaskCompleted:
		return e.TaskScheduledID, true
	case *TaskFailed:
		return e.TaskScheduledID, true
	case *SubOrchestrationInstanceCompleted:
		return e.TaskScheduledID, true
	case *SubOrchestrationInstanceFailed:
		return e.TaskScheduledID, true
	case *TimerFired:
		return e.TimerID, true
	}
	return 0, false
}
