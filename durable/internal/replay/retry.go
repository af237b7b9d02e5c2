package replay

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// An Again decides what becomes of something that failed. It may begin it anew,
// and blocks through the execution only. What it returns is the future that
// counts in the end: the first one, or another that is complete.
type Again func(first *Future) (last *Future)

// isFailure reports whether e says that something failed.
func isFailure(e history.Event) bool {
	switch e.(type) {
	case *history.TaskFailed, *history.SubOrchestrationInstanceFailed:
		return true
	}
	return false
}

// retries are what is tried again when it fails.
type retries struct {
	x     *Execution
	again map[*Future]Again
}

// Retry has again run, as a coroutine, before anybody is told that f failed. It
// costs nothing unless f fails.
//
// In DurableTask, what is to be tried again is tried by the coroutine that
// called it (DurableTask.Core/RetryInterceptor.cs, Invoke). The actions come in
// the same order: the first attempt is decided on when it is called for, and
// all others while nothing else runs.
func (r *retries) Retry(f *Future, again Again) {
	if r.again == nil {
		r.again = make(map[*Future]Again)
	}
	r.again[f] = again
}

// retry begins to try f again if e failed it and it is to be, and reports
// whether it did.
func (r *retries) retry(f *Future, e history.Event) bool {
	again := r.again[f]
	delete(r.again, f)
	if again == nil || !isFailure(e) {
		return false
	}
	f.event = e
	r.x.group.Go(func() {
		last := again(f)
		f.id = last.id
		f.complete(last.event)
	})
	return true
}
