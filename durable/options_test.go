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

// What attempts come to, in turn, a letter each; the last goes on for ever.
const (
	attemptFails   = 'f'
	attemptStop    = 's' // fails with a message that predicates may refuse
	attemptFatal   = 'n' // fails, marked by NonRetryable
	attemptIsRight = 'r'
)

// retryCase is one choice of each option, and what happens.
type retryCase struct {
	durable.RetryPolicy

	handle   string // of which errors the predicate says yes: "", "all", "none" or "most"
	attempts string
	takes    time.Duration // by each attempt
	child    bool          // it is a sub-orchestration that is tried
	evict    bool          // each episode is a replay
}

// expect says what a policy is to come to, a line for each attempt and wait, by simulating
// the time that passes. It is written after the documentation of RetryPolicy, and shares
// nothing with what is tested.
func (c retryCase) expect() (lines []string, failed bool) {
	now, pause := time.Duration(0), float64(c.FirstInterval)
	for n := 0; ; n++ {
		lines = append(lines, "attempt")
		now += c.takes
		came := c.attempts[min(n, len(c.attempts)-1)]
		if came == attemptIsRight {
			return lines, false
		}
		mayBeTried := came != attemptFatal && c.handle != "none" && !(c.handle == "most" && came == attemptStop)
		inTime := c.RetryTimeout == 0 || now < c.RetryTimeout
		if !mayBeTried || !inTime {
			return lines, true
		}
		if n+1 == c.MaxAttempts {
			return append(lines, fmt.Sprint("timer ", now)), true // of no length
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

// play has an orchestrator use the policy, and returns the same lines.
func (c retryCase) play(t *testing.T) (lines []string, failed bool) {
	policy := c.RetryPolicy
	if c.handle != "" {
		policy.Handle = func(err error) bool {
			failure, ok := errors.AsType[*durable.TaskFailedError](err)
			if !ok {
				t.Errorf("the predicate is asked of %T", err)
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
			t.Fatalf("%d actions at a time: %s", len(actions), replaytest.Describe(actions))
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

// outcome is the event by which an attempt ends.
func (c retryCase) outcome(id int, came byte) history.Event {
	h, message := history.NewHeader(replaytest.Epoch), "no"
	if came == attemptStop {
		message = "stop"
	}
	failure := &history.FailureDetails{ErrorType: "T", ErrorMessage: message, IsNonRetriable: came == attemptFatal}
	switch {
	case came == attemptIsRight && c.child:
		return &history.SubOrchestrationInstanceCompleted{Header: h, TaskScheduledID: id, Result: new("1")}
	case came == attemptIsRight:
		return done(id, "1")
	case c.child:
		return &history.SubOrchestrationInstanceFailed{Header: h, TaskScheduledID: id, Reason: &message, Failure: failure}
	}
	return &history.TaskFailed{Header: h, TaskScheduledID: id, Reason: &message, Failure: failure}
}

// All options of retries with all others: what one says holds whatever the others say.
func TestRetry_OptionsHoldTogether(t *testing.T) {
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
								if n++; n%every != 0 { // with 23, all pairs of choices are among these
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
		t.Errorf("only %d choices were tested", tested)
	}
}

// Three waits with a timeout, one after another: what they come to is decided by the order
// of events and timers, in however many episodes these come, and whether the orchestrator
// is in memory. A timer of a wait that is over does nothing.
func TestAwaitTimeout_GoesByTheOrderOfEventsHoweverTheyAreBatched(t *testing.T) {
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
		for choice := range 1 << length { // what comes: an event, or the oldest timer that has not fired
			for cuts := range 1 << (length - 1) { // after what an episode ends
				var came []string
				wait, fired, raised := 0, 0, 0 // wait has the timer of its number
				created := 1                   // timers that are recorded: only these can fire
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
		t.Errorf("only %d orders were tested", tested)
	}
}
