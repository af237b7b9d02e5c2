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

// Poll calls f in the worker until f is done, and records only its last result. Use it to
// wait for a system that cannot raise an event:
//
//	job, err := durable.Poll(ctx, "export", durable.PollPolicy{Interval: time.Minute},
//		func(ctx context.Context, n int) (Job, bool, error) {
//			job, err := exports.Get(ctx, id)
//			return job, job.Ended, err
//		}).Await()
//
// F returns the result, whether it is done, and an error. While it is not done, its result is
// ignored and nothing is added to the history. An error ends the task with a
// *[TaskFailedError]: return false without an error to ignore a failure. With a
// [RetryPolicy], the poll starts again. [Tries] and [AttemptTimeout] apply to each call of
// f.
//
// N is the number of the call in the schedule of the policy, from 1. It survives crashes. A
// call is skipped with its number if no worker was able to make it in time, or if the
// previous call took too long. After a crash a call may be repeated.
//
// If the next call is due in more than 10 seconds and the instance waits for nothing else in
// this worker, it leaves memory. For a deadline, use AwaitTimeout. A poll that is over its
// deadline continues until its orchestration ends or continues as new.
//
// Apart from that, a poll is a [Step]: f runs at least once, the idempotency key is the same
// for all calls, and the history has an activity of its name. [AtMostOnce] is not allowed.
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
