package history

// Completes returns the EventID of the event whose action e completes: the
// task, child or timer that ended. ok is false if e is no completion.
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
