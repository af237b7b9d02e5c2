package dispatch

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// smallPayload is the size in bytes up to which items are not counted. Such items run in
// addition to any large item; the slots limit their number.
const smallPayload = 256 << 10

// errNoRoom is the reason for abandoning messages whose payload does not fit.
var errNoRoom = errors.New("the payloads of running instances leave no room for the messages")

// An admission limits the total payload of the items of one kind that run at the same time.
// Except enter, its methods are safe for concurrent use.
type admission struct {
	limit int // in bytes

	mu      sync.Mutex // protects the following
	taken   int
	waiting bool          // an item is waiting in enter
	freed   chan struct{} // capacity 1; receives a token when bytes are released

	pacer reclaim.Pacer
}

func newAdmission(limit int64) *admission {
	return &admission{limit: int(min(limit, math.MaxInt)), freed: make(chan struct{}, 1)}
}

// fits reports whether an item of size bytes may run while others hold taken bytes. If no
// counted item is running, an item of any size fits.
func fits(limit, taken, size int) bool {
	return size <= smallPayload || taken == 0 || size <= limit-taken
}

// enter waits until an item fits and admits it. It returns false if ctx ends first. It must not
// be called concurrently.
func (a *admission) enter(ctx context.Context, size int) bool {
	for !a.admit(size, true) {
		select {
		case <-a.freed:
		case <-ctx.Done():
			a.mu.Lock()
			defer a.mu.Unlock()
			a.waiting = false
			return false
		}
	}
	a.pacer.Step(size)
	return true
}

// tryEnter admits an item if it fits and no other item is waiting. A small item always enters.
func (a *admission) tryEnter(size int) bool { return a.admit(size, false) }

// add admits an item whose payload is in memory already.
func (a *admission) add(size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken += counted(size)
}

// admit admits an item if it fits. A waiting item takes precedence over all others except small
// ones, which are not counted.
func (a *admission) admit(size int, waits bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	isFirst := waits || !a.waiting || size <= smallPayload
	if !isFirst || !fits(a.limit, a.taken, size) {
		a.waiting = a.waiting || waits
		return false
	}
	if waits {
		a.waiting = false
	}
	a.taken += counted(size)
	return true
}

// release releases the bytes of an item.
func (a *admission) release(size int) {
	a.mu.Lock()
	a.taken -= counted(size)
	a.mu.Unlock()
	select {
	case a.freed <- struct{}{}:
	default:
	}
	a.pacer.Step(size)
}

func (a *admission) inUse() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

// counted returns the number of bytes that an item holds.
func counted(size int) int {
	if size <= smallPayload {
		return 0
	}
	return size
}

// payloadOfItem returns the payload bytes of an instance's history and messages.
func payloadOfItem(w *provider.OrchestrationWorkItem) int {
	n := payloadOfMessages(w.Messages)
	for _, e := range w.History {
		n += payloadOf(e)
	}
	return n
}

func payloadOfMessages(messages []provider.TaskMessage) (n int) {
	for _, m := range messages {
		n += payloadOf(m.Event)
	}
	return n
}

// payloadOf returns the size of an event's input or output in bytes.
func payloadOf(e history.Event) int {
	var text *string
	switch e := e.(type) {
	case *history.ExecutionStarted:
		text = e.Input
	case *history.ExecutionCompleted:
		text = e.Result
	case *history.ContinueAsNew:
		text = e.Result
	case *history.TaskScheduled:
		text = e.Input
	case *history.TaskCompleted:
		text = e.Result
	case *history.SubOrchestrationInstanceCreated:
		text = e.Input
	case *history.SubOrchestrationInstanceCompleted:
		text = e.Result
	case *history.EventRaised:
		text = e.Input
	case *history.EventSent:
		text = e.Input
	}
	if text == nil {
		return 0
	}
	return len(*text)
}

// An admitted is a work item and the payload bytes that it holds until it ends.
type admitted[T any] struct {
	item T
	size int
}
