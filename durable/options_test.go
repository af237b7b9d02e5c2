package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// Outcomes of attempts, one letter per attempt. The last one applies to all further
// attempts.
const (
	attemptFails    = 'f'
	attemptStop     = 's' // fails with a message that a predicate may reject
	attemptFatal    = 'n' // fails, marked by NonRetryable
	attemptSucceeds = 'r'
)

// retryCase is one combination of options, and the outcomes of the attempts.
type retryCase struct {
	durable.RetryPolicy

	handle   string // errors that the predicate accepts: "", "all", "none" or "most"
	attempts string
	takes    time.Duration // duration of each attempt
	child    bool          // retry a sub-orchestration
	evict    bool          // each episode is a replay
}

// expect simulates the policy and returns the expected attempts and timers, one per
// line. It follows the documentation of RetryPolicy and shares no code with the
// implementation.
func (c retryCase) expect() (lines []string, failed bool) {
	now, pause := time.Duration(0), float64(c.FirstInterval)
	for n := 0; ; n++ {
		lines = append(lines, "attempt")
		now += c.takes
		came := c.attempts[min(n, len(c.attempts)-1)]
		if came == attemptSucceeds {
			return lines, false
		}
		mayBeTried := came != attemptFatal && c.handle != "none" && !(c.handle == "most" && came == attemptStop)
		inTime := c.RetryTimeout == 0 || now < c.RetryTimeout
		if !mayBeTried || !inTime {
			return lines, true
		}
		if n+1 == c.MaxAttempts {
			return append(lines, fmt.Sprint("timer ", now)), true // the delay is 0
		}
		wait := time.Duration(pause)
		if c.MaxInterval > 0 {
			wait = min(wait, c.MaxInterval)
		}
		now += wait
		lines = append(lines, fmt.Sprint("timer ", now))
		if c.Coefficient > 0 {
			pause *= c.Coefficient
		}
	}
}

// play runs an orchestrator with the policy and returns the same lines.
func (c retryCase) play(t *testing.T) (lines []string, failed bool) {
	policy := c.RetryPolicy
	if c.handle != "" {
		policy.Handle = func(err error) bool {
			failure, ok := errors.AsType[*durable.TaskFailedError](err)
			if !ok {
				t.Errorf("the predicate got a %T, want a *TaskFailedError", err)
			}
			return c.handle == "all" || c.handle == "most" && failure.Message != "stop"
		}
	}
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		if c.child {
			return durable.OrchestratorName[string, int]("Child").Call(ctx, "a", policy).Await()
		}
		return durable.CallActivity(ctx, count, "a", policy).Await()
	})
	tried := 0
	for actions := s.Start(nil); ; {
		if len(actions) != 1 {
			t.Fatalf("%d actions in one episode, want 1: %s", len(actions), replaytest.Describe(actions))
		}
		if c.evict {
			s.Evict()
		}
		var next history.Event
		switch a := actions[0].(type) {
		case *replay.Complete:
			return lines, a.Status == history.Failed
		case *replay.CreateTimer:
			lines = append(lines, fmt.Sprint("timer ", a.FireAt.Sub(replaytest.Epoch)))
			s.Now, next = a.FireAt, fired(a.ID)
		default:
			lines = append(lines, "attempt")
			s.Now = s.Now.Add(c.takes)
			next = c.outcome(a.ActionID(), c.attempts[min(tried, len(c.attempts)-1)])
			tried++
		}
		actions = s.Episode(next)
	}
}

// outcome returns the event that ends an attempt.
func (c retryCase) outcome(id int, came byte) history.Event {
	h, message := history.NewHeader(replaytest.Epoch), "no"
	if came == attemptStop {
		message = "stop"
	}
	failure := &history.FailureDetails{ErrorType: "T", ErrorMessage: message, IsNonRetriable: came == attemptFatal}
	switch {
	case came == attemptSucceeds && c.child:
		return &history.SubOrchestrationInstanceCompleted{Header: h, TaskScheduledID: id, Result: new("1")}
	case came == attemptSucceeds:
		return done(id, "1")
	case c.child:
		return &history.SubOrchestrationInstanceFailed{Header: h, TaskScheduledID: id, Reason: &message, Failure: failure}
	}
	return &history.TaskFailed{Header: h, TaskScheduledID: id, Reason: &message, Failure: failure}
}

// Each option of a retry must work in combination with all values of the other options.
func TestRetry_AllOptionsWorkInCombination(t *testing.T) {
	t.Parallel()
	const second = time.Second
	n, tested := 0, 0
	every := testshare.Amount(23, 97)
	for _, most := range []int{1, 2, 3, 6} {
		for _, coefficient := range []float64{0, 1, 1.5, 2, 10} {
			for _, longest := range []time.Duration{0, 4 * second, 15 * second, time.Hour} {
				for _, timeout := range []time.Duration{0, second, 7 * second, 11 * second, 40 * second} {
					for _, handle := range []string{"", "all", "none", "most"} {
						for _, attempts := range []string{"f", "fn", "n", "fs", "ffsr", "r", "fr", "fffr", "ffn", "s"} {
							for _, takes := range []time.Duration{0, 3 * second, 7 * second} {
								if n++; n%every != 0 { // every 23rd combination covers all pairs of choices
									continue
								}
								c := retryCase{
									RetryPolicy: durable.RetryPolicy{MaxAttempts: most, FirstInterval: 4 * second, Coefficient: coefficient, MaxInterval: longest, RetryTimeout: timeout},
									handle:      handle, attempts: attempts, takes: takes, child: n%2 == 0, evict: n%3 == 0,
								}
								tested++
								want, wantFailed := c.expect()
								if got, failed := c.play(t); strings.Join(got, "\n") != strings.Join(want, "\n") || failed != wantFailed {
									t.Fatalf("%+v: %q, failed %v, want %q, %v", c, got, failed, want, wantFailed)
								}
							}
						}
					}
				}
			}
		}
	}
	if tested < testshare.Amount(2000, 450) {
		t.Errorf("tested only %d combinations", tested)
	}
}

// Three waits with a timeout run in sequence. Their results depend only on the order of
// events and timers. How these are split into episodes, and whether the orchestrator is
// in memory, has no effect. The timer of a completed wait has no effect.
func TestAwaitTimeout_DependsOnlyOnTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		var came []string
		for range 3 {
			n, err := number.Wait(ctx).AwaitTimeout(time.Hour)
			if err != nil && !errors.Is(err, durable.ErrTimeout) {
				return "", err
			}
			came = append(came, map[bool]string{true: "late", false: fmt.Sprint(n)}[err != nil])
		}
		return strings.Join(came, " "), nil
	}
	tested := 0
	for length := 3; length <= 5; length++ {
		for choice := range 1 << length { // the next event: a raised event, or the oldest timer that has not fired
			for cuts := range 1 << (length - 1) { // positions at which an episode ends
				var came []string
				wait, fired, raised := 0, 0, 0 // wait is also the number of its timer
				created := 1                   // recorded timers; only these can fire
				batches := [][]history.Event{nil}
				for i := range length {
					last := len(batches) - 1
					if choice>>i&1 == 0 {
						batches[last] = append(batches[last], replaytest.Raised("Number", fmt.Sprint(raised)))
						if wait < 3 {
							came, wait = append(came, fmt.Sprint(raised)), wait+1
						}
						raised++
					} else if fired < created {
						batches[last] = append(batches[last], replaytest.Fired(fired))
						if fired == wait && wait < 3 {
							came, wait = append(came, "late"), wait+1
						}
						fired++
					}
					if cuts>>i&1 == 1 && len(batches[last]) > 0 {
						batches, created = append(batches, nil), min(wait+1, 3)
					}
				}
				if wait < 3 {
					continue
				}
				tested++
				for _, evict := range []bool{false, true} {
					s := stage(t, main)
					s.Start(nil)
					for _, batch := range batches {
						if s.End() != nil {
							break
						}
						if evict {
							s.Evict()
						}
						s.Episode(batch...)
					}
					if got, want := s.Output(history.Completed), fmt.Sprintf("%q", strings.Join(came, " ")); got != want {
						t.Errorf("choice %b, cuts %b, evicted %v: %s, want %s", choice, cuts, evict, got, want)
					}
				}
			}
		}
	}
	if tested < 200 {
		t.Errorf("tested only %d orders", tested)
	}
}
