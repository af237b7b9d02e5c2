package embedded

import (
	"container/heap"
	"time"
)

// An alarm is something to do at a time: to deliver a timer, or to hand out
// again what was abandoned. One goroutine, that of Run, looks after all.
type alarm struct {
	at   time.Time
	ring func() // called with Hub.mu locked
	slot int    // its place in the heap, -1 if it is not there
}

// alarms is a heap of alarms, the earliest first.
type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].slot, a[j].slot = i, j
}

// Push is for package heap.
func (a *alarms) Push(x any) {
	x.(*alarm).slot = len(*a)
	*a = append(*a, x.(*alarm))
}

// Pop is for package heap.
func (a *alarms) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	x.slot = -1
	return x
}

// setAlarm has ring called at a time, while Run runs. mu is locked.
func (h *Hub) setAlarm(at time.Time, ring func()) *alarm {
	a := &alarm{at: at, ring: ring}
	heap.Push(&h.alarms, a)
	if a.slot == 0 {
		post(h.alarmSet)
	}
	return a
}

// stopAlarm takes an alarm back. mu is locked.
func (h *Hub) stopAlarm(a *alarm) {
	if a != nil && a.slot >= 0 {
		heap.Remove(&h.alarms, a.slot)
	}
}

// ring calls all alarms that are due and returns how long it is until the
// next; ok is false if there is none.
func (h *Hub) ring() (wait time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.alarms) > 0 {
		// Compared by the wall clock: that is what timers are set by, and it goes
		// on while the machine sleeps.
		if wait := h.alarms[0].at.Sub(time.Now().Round(0)); wait > 0 {
			return wait, true
		}
		heap.Pop(&h.alarms).(*alarm).ring()
	}
	return 0, false
}

// post leaves a token in a channel that has room for one.
func post(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
