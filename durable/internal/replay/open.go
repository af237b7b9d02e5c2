package replay

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// open are the futures of actions whose completion is yet to come, by the
// action's number.
type open struct {
	x     *Execution
	base  int               // the number of slots[0]
	slots []*Future         // nil where there is none
	head  int               // the first slot that is not nil
	again map[*Future]Again // of what is tried again when it fails
	// attempts are those of what is tried again, by what each waits for. Only what has
	// failed has any.
	attempts map[*Future]Attempt
}

// An Attempt is one of several at the same thing.
type Attempt struct {
	Of     *Future       // the first, which stands for all
	Number int           // counted from 1
	Most   int           // how many there may be
	After  history.Event // the failure of the previous attempt
}

// AwaitAttempt waits until f is complete: an attempt, or the timer before it.
func (o *open) AwaitAttempt(f *Future, a Attempt) {
	if o.attempts == nil {
		o.attempts = make(map[*Future]Attempt)
	}
	o.attempts[f] = a
	f.Await()
	delete(o.attempts, f)
}

// Attempt returns which attempt f is, or is the timer before; ok is false if it is none,
// or the first.
func (o *open) Attempt(f *Future) (a Attempt, ok bool) {
	a, ok = o.attempts[f]
	return a, ok
}

// add keeps f as the future with the given number, which is above all others'.
func (o *open) add(id int, f *Future) {
	switch {
	case len(o.slots) == 0:
		o.base = id
	case len(o.slots) == cap(o.slots) && o.head > len(o.slots)/2:
		// Most slots are used up: make room rather than grow.
		n := copy(o.slots, o.slots[o.head:])
		clear(o.slots[n:])
		o.slots = o.slots[:n]
		o.base += o.head
		o.head = 0
	}
	for o.base+len(o.slots) < id {
		o.slots = append(o.slots, nil) // an action without an awaiter
	}
	o.slots = append(o.slots, f)
}

// remove takes out the future with the given number, nil if it is not open or
// of another kind.
func (o *open) remove(id int, k kind) *Future {
	i := id - o.base
	if i < 0 || i >= len(o.slots) || o.slots[i] == nil || o.slots[i].kind != k {
		return nil
	}
	f := o.slots[i]
	o.slots[i] = nil
	for o.head < len(o.slots) && o.slots[o.head] == nil {
		o.head++
	}
	if o.head == len(o.slots) {
		o.slots, o.head = o.slots[:0], 0
	}
	return f
}

func (o *open) track(f *Future, id int, k kind, name string) {
	f.x, f.id, f.kind, f.name = o.x, id, k, name
	o.add(id, f)
}

// settle completes what the action with the given ID began. A completion of
// something that is not open is a duplicate, and is ignored
// (DurableTask.Core/TaskOrchestrationContext.cs, HandleTaskCompletedEvent).
func (o *open) settle(id int, k kind, e history.Event) {
	f := o.remove(id, k)
	if f == nil || len(o.again) > 0 && o.retry(f, e) {
		return
	}
	f.complete(e)
}

// Open returns the tasks, timers and children that the orchestrator has begun
// and that are not complete, in the order of their numbers.
func (o *open) Open() []*Future {
	var all []*Future
	if o.x.complete != nil || o.x.over {
		return nil
	}
	for _, f := range o.slots[o.head:] {
		if f != nil {
			all = append(all, f)
		}
	}
	return all
}

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

// Retry runs again, as a coroutine, before the failure of f is delivered. It costs
// nothing unless f fails.
//
// In DurableTask, what is to be tried again is tried by the coroutine that
// called it (DurableTask.Core/RetryInterceptor.cs, Invoke). The actions come in
// the same order: the first attempt is decided on when it is called for, and
// all others while nothing else runs.
func (o *open) Retry(f *Future, again Again) {
	if o.again == nil {
		o.again = make(map[*Future]Again)
	}
	o.again[f] = again
}

// retry begins to try f again if e failed it and it is to be, and reports
// whether it did.
func (o *open) retry(f *Future, e history.Event) bool {
	again := o.again[f]
	delete(o.again, f)
	if again == nil || !isFailure(e) {
		return false
	}
	f.event = e
	o.x.group.Go(func() {
		last := again(f)
		f.id = last.id
		f.complete(last.event)
	})
	return true
}
