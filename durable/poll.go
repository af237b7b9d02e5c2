package durable

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// PollPolicy is the schedule of a [Poll]. The first call is due at once, and each further
// call after an interval. The schedule starts with the episode that called Poll and does
// not depend on the duration of the calls.
type PollPolicy struct {
	// Interval is the time between the first two calls; at least 1 millisecond.
	Interval time.Duration

	// Coefficient is the ratio of each interval to the previous one; at least 1. Zero
	// means 1.
	Coefficient float64

	// MaxInterval is the maximum interval; at least Interval. Zero means 6 days, or
	// Interval if that is longer.
	MaxInterval time.Duration
}

// Poll calls f in the worker until f reports that the poll is done, and records only
// the last result. Use it to wait for a system that cannot raise an event:
//
//	job, err := durable.Poll(ctx, "export", durable.PollPolicy{Interval: time.Minute},
//		func(ctx context.Context, n int) (Job, bool, error) {
//			job, err := exports.Get(ctx, id)
//			return job, job.Ended, err
//		}).Await()
//
// The function f returns a result, whether the poll is done, and an error. Until the
// poll is done, its results are ignored and the history does not grow. An error ends
// the task with a *[TaskFailedError]. To continue after a failure, f returns false and
// no error. With a [RetryPolicy], the poll starts again after an error. [Tries] and
// [AttemptTimeout] apply to each call of f.
//
// The argument n of f is the number of the call in the schedule of the policy, from 1.
// A crash does not reset it. Several calls are due at the same time if no worker makes
// them in time, or if a call takes long. Only the last of them is made, and the numbers
// of the others are skipped. After a crash a call may be repeated.
//
// The instance leaves memory if the next call is due in more than 10 seconds and no
// other step of the instance is in progress. For a deadline, use [Task.AwaitTimeout].
// The poll continues after the deadline, until its orchestration ends or continues as
// new.
//
// In all other respects a poll is a [Step]: f runs at least once, the idempotency key is the
// same for all calls, and the history has an activity with the poll's name. [AtMostOnce] is
// not allowed.
func Poll[T any](ctx *Context, name string, policy PollPolicy, f func(ctx context.Context, n int) (T, bool, error), opts ...StepOption) *Task[T] {
	schedule := policy.schedule()
	for _, opt := range opts {
		if opt == AtMostOnce {
			return completedTask[T](ctx, fmt.Errorf("durable: poll %s cannot run at most once", name))
		}
	}
	if err := policy.validate(schedule); err != nil {
		return completedTask[T](ctx, err)
	}
	var call func(context.Context) (T, error)
	if f != nil {
		call = func(ctx context.Context) (T, error) {
			info, _ := dispatch.ActivityInfoFrom(ctx)
			out, done, err := f(ctx, info.Poll)
			if err == nil && !done {
				err = dispatch.ErrPollAgain
			}
			return out, err
		}
	}
	return runStep(ctx, "Poll", name, call, schedule, opts)
}

// schedule returns the policy with its defaults.
func (p PollPolicy) schedule() *replay.PollSchedule {
	s := replay.PollSchedule(p)
	if s.Coefficient == 0 {
		s.Coefficient = 1
	}
	if s.MaxInterval == 0 {
		s.MaxInterval = max(maxIntervalDefault, s.Interval)
	}
	return &s
}

// validate returns an error that names the first invalid field.
func (p PollPolicy) validate(s *replay.PollSchedule) error {
	switch {
	case s.Interval < time.Millisecond:
		return fmt.Errorf("durable: PollPolicy.Interval is %v; want at least 1ms", s.Interval)
	case !(s.Coefficient >= 1) || math.IsInf(s.Coefficient, 0): // the negation catches NaN
		return fmt.Errorf("durable: PollPolicy.Coefficient is %v; want at least 1", s.Coefficient)
	case s.MaxInterval < s.Interval:
		return fmt.Errorf("durable: PollPolicy.MaxInterval is %v; want at least Interval, %v", s.MaxInterval, s.Interval)
	}
	return nil
}
