package replay

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// open holds the futures of incomplete activities, timers and children, by action number.
type open struct {
	x       *Execution
	base    int                   // action number of slots[0]
	slots   []*Future             // nil for completed and for untracked actions
	head    int                   // index of the first slot that is not nil
	retries map[*Future]RetryFunc // retry function of each future that may be retried
	// attempts holds the current attempt at each future that a retry loop awaits. It has no
	// entry for first attempts.
	attempts map[*Future]Attempt
}

// An Attempt is one of several attempts at an operation.
type Attempt struct {
	Operation       *Future       // the future of the first attempt, which represents the operation
	Number          int           // counted from 1
	MaxAttempts     int           // maximum number of attempts
	PreviousFailure history.Event // the failure of the previous attempt
}

// AwaitAttempt waits until f is complete. F is attempt a, or the timer before it.
func (o *open) AwaitAttempt(f *Future, a Attempt) {
	if o.attempts == nil {
		o.attempts = make(map[*Future]Attempt)
	}
	o.attempts[f] = a
	f.Await()
	delete(o.attempts, f)
}

// Attempt returns the attempt that f belongs to: f is that attempt or the timer before it. It
// returns ok == false for the first attempt and for other futures.
func (o *open) Attempt(f *Future) (a Attempt, ok bool) {
	a, ok = o.attempts[f]
	return a, ok
}

// add adds f with the given number, which must be higher than all previous ones.
func (o *open) add(id int, f *Future) {
	switch {
	case len(o.slots) == 0:
		o.base = id
	case len(o.slots) == cap(o.slots) && o.head > len(o.slots)/2:
		// Most slots are unused: move the rest instead of growing.
		n := copy(o.slots, o.slots[o.head:])
		clear(o.slots[n:])
		o.slots = o.slots[:n]
		o.base += o.head
		o.head = 0
	}
	for o.base+len(o.slots) < id {
		o.slots = append(o.slots, nil) // an action without a future
	}
	o.slots = append(o.slots, f)
}

// remove removes and returns the future with the given number. It returns nil if the future is
// not open or has another kind.
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

// settle completes the future of action id with e. A completion of an action that is not open
// is a duplicate and is ignored (DurableTask.Core/TaskOrchestrationContext.cs,
// HandleTaskCompletedEvent).
func (o *open) settle(id int, k kind, e history.Event) {
	f := o.remove(id, k)
	if f == nil || len(o.retries) > 0 && o.retry(f, e) {
		return
	}
	f.complete(e)
}

// IncompleteFutures returns the futures of incomplete activities, timers and children, in the
// order of their numbers.
func (o *open) IncompleteFutures() []*Future {
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

// RetryFunc retries a failed operation. First is its failed future. The function may schedule
// further attempts, and may block only through the execution. It returns the future with the
// final result: first, or another complete future.
type RetryFunc func(first *Future) (last *Future)

// isFailure reports whether e is the failure of an activity or a child.
func isFailure(e history.Event) bool {
	switch e.(type) {
	case *history.TaskFailed, *history.SubOrchestrationInstanceFailed:
		return true
	}
	return false
}

// Retry registers again for f. If f fails, again runs as a coroutine before the failure is
// delivered. Otherwise it costs nothing.
//
// In DurableTask the calling coroutine retries (DurableTask.Core/RetryInterceptor.cs, Invoke).
// The order of the actions is the same: the first attempt is scheduled by the call, and the
// others while no other coroutine runs.
func (o *open) Retry(f *Future, again RetryFunc) {
	if o.retries == nil {
		o.retries = make(map[*Future]RetryFunc)
	}
	o.retries[f] = again
}

// retry starts the registered retry of f if e is a failure. It reports whether it did.
func (o *open) retry(f *Future, e history.Event) bool {
	again := o.retries[f]
	delete(o.retries, f)
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
