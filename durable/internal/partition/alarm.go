package partition

import (
	"container/heap"
	"time"
)

// alarm calls a function at a time: to deliver a timer, or to dispatch abandoned work again.
// The goroutine of Run fires all alarms.
type alarm struct {
	at   time.Time
	fire func() // called with work.mu locked
	slot int    // index in the heap; -1 if the alarm has fired or was stopped
}

// alarms is a heap of alarms, earliest first. Callers hold work.mu.
type alarms []*alarm

// set adds an alarm.
func (a *alarms) set(at time.Time, fire func()) *alarm {
	x := &alarm{at: at, fire: fire}
	heap.Push(a, x)
	return x
}

// stop cancels an alarm, which may be nil.
func (a *alarms) stop(x *alarm) {
	if x != nil && x.slot >= 0 {
		heap.Remove(a, x.slot)
	}
}

// fireDue fires the alarms that are due and returns the time until the next one; ok is false if no
// alarm is set.
func (a *alarms) fireDue() (wait time.Duration, ok bool) {
	for len(*a) > 0 {
		// Durable timers follow the wall clock. Round strips the monotonic clock reading, which
		// may stand still while the machine sleeps.
		if wait := (*a)[0].at.Sub(time.Now().Round(0)); wait > 0 {
			return wait, true
		}
		heap.Pop(a).(*alarm).fire()
	}
	return 0, false
}

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].slot, a[j].slot = i, j
}

// Push implements [heap.Interface].
func (a *alarms) Push(x any) {
	x.(*alarm).slot = len(*a)
	*a = append(*a, x.(*alarm))
}

// Pop implements [heap.Interface].
func (a *alarms) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	x.slot = -1
	return x
}
