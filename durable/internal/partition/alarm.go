package partition

import "time"

// alarm calls a function at a time: to deliver a timer, or to dispatch abandoned work again.
// The goroutine of Run fires all alarms.
type alarm struct {
	at   time.Time
	fire func() // called with work.mu locked
	slot int    // index in the heap; -1 if the alarm has fired or was stopped
}

// alarms is a heap of alarms, earliest first.
type alarms []*alarm

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
