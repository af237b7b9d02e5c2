package dispatch

import (
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A stall is the reason why the code of an instance was given up, as an error.
type stall struct {
	turn       *turn
	start      *history.ExecutionStarted
	running    time.Duration // since the code was resumed
	foreign    error         // the durable call of another goroutine, nil if there was none
	isStopping bool          // it was given up early, since the worker stops
	stack      string        // of the code, of this or another instance
	isNewStack bool          // the log does not have the stack yet
	resumed    time.Time     // of the latest resume event that the code had received
}

func (s *stall) Error() string { return s.function().Error() }

// Unwrap returns the function, which is held back.
func (s *stall) Unwrap() error { return s.function() }

func (s *stall) function() *unknownFunctionError {
	return &unknownFunctionError{kind: "orchestrator", name: s.start.Name, version: s.start.Version, stalled: true}
}

// Failure returns the failure of the instance, nil if it is held back.
func (s *stall) Failure() *history.FailureDetails {
	if s.foreign == nil {
		return nil
	}
	return replay.FailureOf(s.foreign)
}

// Stalls are the instances whose code this process has given up. Its zero value is empty.
type Stalls struct {
	mu     sync.Mutex                   // protects the following
	of     map[string]*stall            // by instance ID
	counts map[unknownFunctionError]int // of held instances, by function
	stacks map[unknownFunctionError]string
}

// Stack returns the stack of an orchestrator that was given up. It is empty for all others.
func (s *Stalls) Stack(name, version string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stacks[unknownFunctionError{kind: "orchestrator", name: name, version: version, stalled: true}]
}

// maxStalls is the number of given-up instances of one function after which the process stops
// running the function.
const maxStalls = 3

// add remembers a stall, and reports whether the process now stops running the function. If
// there are too many stalls it discards another one, whose instance then stalls again.
func (s *Stalls) add(it *stall) (stops bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]*stall)
	}
	id := it.start.Instance.InstanceID
	if s.of[id] == nil && len(s.of) >= maxWaiting {
		for other := range s.of {
			delete(s.of, other)
			break
		}
	}
	it.turn = nil
	s.of[id] = it
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

// get returns the reason not to run the code of the execution that start began, nil if there
// is none.
func (s *Stalls) get(start *history.ExecutionStarted) *stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.of[start.Instance.InstanceID]; it != nil && it.start.Instance == start.Instance {
		return it
	}
	if it := (&stall{start: start}); s.counts[*it.function()] >= maxStalls {
		return it
	}
	return nil
}

// resume discards the stall of an instance, and those counted of its function, if messages
// have a resume event that its code has not received yet.
func (s *Stalls) resume(start *history.ExecutionStarted, messages []provider.TaskMessage) {
	at := resumedAt(messages)
	if start == nil || at.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.of[start.Instance.InstanceID]; it == nil || at.After(it.resumed) {
		delete(s.of, start.Instance.InstanceID)
		function := *(&stall{start: start}).function()
		delete(s.counts, function)
		delete(s.stacks, function)
	}
}

// remove discards the stall of an instance, which has ended.
func (s *Stalls) remove(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, instanceID)
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
