package dispatch

import (
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A stall is the error of an instance whose code was abandoned.
type stall struct {
	turn       *turn
	start      *history.ExecutionStarted
	running    time.Duration // time since the code was resumed
	foreign    error         // durable call of another goroutine; may be nil
	isStopping bool          // abandoned early because the worker is stopping
	stack      string        // of the code, in this or another instance
	isNewStack bool          // the stack is not in the log yet
	resumed    time.Time     // time of the last resume event that the code had received
}

func (s *stall) Error() string { return s.function().Error() }

// Unwrap returns the function that is held back.
func (s *stall) Unwrap() error { return s.function() }

func (s *stall) function() *unknownFunctionError {
	return &unknownFunctionError{kind: "orchestrator", name: s.start.Name, version: s.start.Version, stalled: true}
}

// Failure returns the failure of the instance, or nil if the instance is held back.
func (s *stall) Failure() *history.FailureDetails {
	if s.foreign == nil {
		return nil
	}
	return replay.FailureOf(s.foreign)
}

// Stalls holds the instances whose code this process has abandoned. The zero value is empty.
type Stalls struct {
	mu         sync.Mutex                   // protects the following
	byInstance map[string]*stall            // by instance ID
	counts     map[unknownFunctionError]int // number of held instances, by function
	stacks     map[unknownFunctionError]string
}

// Stack returns the stack of an orchestrator that was abandoned, or "" for others.
func (s *Stalls) Stack(name, version string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stacks[unknownFunctionError{kind: "orchestrator", name: name, version: version, stalled: true}]
}

// maxStalls is the number of abandoned instances after which the process no longer runs their function.
const maxStalls = 3

// add adds a stall. It reports whether the process no longer runs the function from now on. If
// there are too many stalls, it discards another one, whose instance then stalls again.
func (s *Stalls) add(it *stall) (stops bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byInstance == nil {
		s.byInstance = make(map[string]*stall)
	}
	id := it.start.Instance.InstanceID
	if s.byInstance[id] == nil && len(s.byInstance) >= maxBlocked {
		for other := range s.byInstance {
			delete(s.byInstance, other)
			break
		}
	}
	it.turn = nil
	s.byInstance[id] = it
	if it.foreign != nil {
		return false
	}
	if s.counts == nil {
		s.counts = make(map[unknownFunctionError]int)
		s.stacks = make(map[unknownFunctionError]string)
	}
	s.stacks[*it.function()] = it.stack
	s.counts[*it.function()]++
	return s.counts[*it.function()] == maxStalls
}

// get returns the reason not to run the code of the execution with the given start, or nil.
func (s *Stalls) get(start *history.ExecutionStarted) *stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.byInstance[start.Instance.InstanceID]; it != nil && it.start.Instance == start.Instance {
		return it
	}
	if it := (&stall{start: start}); s.counts[*it.function()] >= maxStalls {
		return it
	}
	return nil
}

// resume discards the stall of an instance and the count of its function, if messages contain a
// resume event that its code has not received.
func (s *Stalls) resume(start *history.ExecutionStarted, messages []provider.TaskMessage) {
	at := resumedAt(messages)
	if start == nil || at.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.byInstance[start.Instance.InstanceID]; it == nil || at.After(it.resumed) {
		delete(s.byInstance, start.Instance.InstanceID)
		function := *(&stall{start: start}).function()
		delete(s.counts, function)
		delete(s.stacks, function)
	}
}

// remove discards the stall of an instance that has ended.
func (s *Stalls) remove(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byInstance, instanceID)
}

// resumedAt returns the time of the latest resume event, or the zero time.
func resumedAt(messages []provider.TaskMessage) (at time.Time) {
	for _, m := range messages {
		if e, ok := m.Event.(*history.ExecutionResumed); ok && e.Timestamp.After(at) {
			at = e.Timestamp
		}
	}
	return at
}
