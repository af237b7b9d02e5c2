package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// stepRuns records the runs of durable steps.
//
//  1. A step does not run after a later one has started, because its result is stored by then. The
//     exception is a process that was frozen: it may begin a step that it has decided before.
//  2. A step that runs at most once does so.
//  3. All runs with one idempotency key belong to one task.
//  4. No step begins after its instance has ended.
//  5. The numbers of a poll's calls do not fall.
type stepRuns struct {
	begun map[string]place    // the last place that began, by path
	once  map[string]int      // runs of steps that run at most once, by task
	keys  map[string]string   // tasks by idempotency key
	polls map[string]pollCall // the last calls, by idempotency key and attempt
}

// pollCall is a call of a poll, on a worker whose clock is ahead by skew.
type pollCall struct {
	number int
	skew   time.Duration
}

// place is the place of a task in its program.
type place struct{ round, step int }

// placeOf returns the path and the place in a key of a task.
func placeOf(key string) (path string, at place) {
	parts := strings.Split(key, "/")
	_, _ = fmt.Sscan(parts[1], &at.round)
	_, _ = fmt.Sscan(parts[2], &at.step)
	return parts[0], at
}

// check records the beginning of a step and returns the broken rules. hasEnded says whether its
// instance has ended, isLate whether its process was frozen. The clock of its worker is
// ahead by skew. A worker numbers the calls of a poll by its clock, so a number may decrease only with the skew.
func (r *stepRuns) check(t Task, kind inlineKind, info durable.ActivityInfo, skew time.Duration, hasEnded, isLate bool) (faults []string) {
	if r.begun == nil {
		*r = stepRuns{map[string]place{}, map[string]int{}, map[string]string{}, map[string]pollCall{}}
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	path, at := placeOf(t.Key)
	path = string(info.InstanceID) + " " + path
	last, key := r.begun[path], info.IdempotencyKey
	switch {
	case at.round > last.round || at.round == last.round && at.step > last.step:
		r.begun[path] = at
	case at != last && !isLate:
		fault("step %s begins after a later one (round %d, step %d)", t.Key, last.round, last.step)
	}
	if hasEnded && !isLate {
		fault("step %s begins although its instance has ended", t.Key)
	}
	if before, known := r.keys[key]; known && before != t.Key {
		fault("steps %s and %s have the idempotency key %s", before, t.Key, key)
	}
	r.keys[key] = t.Key
	attempt := fmt.Sprint(key, " ", info.Attempt)
	if last := r.polls[attempt]; !isLate {
		if t.Poll < last.number && skew >= last.skew {
			fault("call %d of poll %s follows call %d", t.Poll, t.Key, last.number)
		}
		r.polls[attempt] = pollCall{t.Poll, skew}
	}
	if kind == asOnce {
		if r.once[key]++; r.once[key] > 1 {
			fault("step %s runs %d times", t.Key, r.once[key])
		}
	}
	return faults
}
