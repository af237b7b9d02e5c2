package durable_test

import (
	"errors"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

const (
	from = durable.EntityKey[counter]("from")
	to   = durable.EntityKey[counter]("to")
)

var errPoor = errors.New("not enough")

// transfer moves an amount between two entities. It checks that it is in the critical
// section, and returns the number of locked entities.
func transfer(ctx *durable.Context, amount int64) (int, error) {
	_, before := ctx.CriticalSection()
	unlock := durable.LockEntities(ctx, to, from, to)
	defer unlock()
	locked, inside := ctx.CriticalSection()
	if before || !inside {
		return 0, errors.New("the critical section did not start at LockEntities")
	}
	balance, err := durable.CallEntity(ctx, from, (*counter).Get, durable.Void{}).Await()
	if err != nil {
		return 0, err
	}
	if balance < amount {
		return 0, errPoor
	}
	taken := durable.CallEntity(ctx, from, (*counter).Add, -amount)
	given := durable.CallEntity(ctx, to, (*counter).Add, amount)
	_, err = durable.AwaitAll(ctx, taken, given)
	return len(locked), err
}

func TestLockEntities_HoldsLocksUntilUnlock(t *testing.T) {
	t.Parallel()
	s := withCounters(t, transfer)
	lock := wantSent(t, s.Start(10), "lock [@counter@from @counter@to] by @counter@from")
	got := wantSent(t, s.Episode(answerTo(lock[0], "Lock Acquisition Completed")), "call @counter@from get(none)")
	moved := wantSent(t, s.Episode(answerTo(got[0], "15")), "call @counter@from add(-10)", "call @counter@to add(10)")
	wantSent(t, s.Episode(answerTo(moved[0], "5")))
	wantSent(t, s.Episode(answerTo(moved[1], "10")), "release @counter@from", "release @counter@to")
	wantOutput(t, s, "2")
}

func TestLockEntities_ReleasesLocksOnAnError(t *testing.T) {
	t.Parallel()
	s := withCounters(t, transfer)
	lock := wantSent(t, s.Start(10), "lock [@counter@from @counter@to] by @counter@from")
	got := wantSent(t, s.Episode(answerTo(lock[0], "Lock Acquisition Completed")), "call @counter@from get(none)")
	wantSent(t, s.Episode(answerTo(got[0], "5")), "release @counter@from", "release @counter@to")
	wantFailure(t, s, "not enough")
}

// The deferred unlock must do nothing if the orchestrator is unloaded from memory.
func TestLockEntities_SurvivesEviction(t *testing.T) {
	t.Parallel()
	s := withCounters(t, transfer)
	s.Cached = false
	lock := wantSent(t, s.Start(10), "lock [@counter@from @counter@to] by @counter@from")
	got := wantSent(t, s.Episode(answerTo(lock[0], "Lock Acquisition Completed")), "call @counter@from get(none)")
	wantSent(t, s.Episode(answerTo(got[0], "5")), "release @counter@from", "release @counter@to")
}

func TestLockEntities_UnlocksOnceOnly(t *testing.T) {
	t.Parallel()
	s := withCounters(t, func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		first := durable.LockEntities(ctx, from)
		first()
		second := durable.LockEntities(ctx, to)
		first() // must not unlock the second section
		_, err := durable.CallEntity(ctx, to, (*counter).Get, durable.Void{}).Await()
		second()
		return durable.Void{}, err
	})
	lock := wantSent(t, s.Start(nil), "lock [@counter@from] by @counter@from")
	lock = wantSent(t, s.Episode(answerTo(lock[0], "Lock Acquisition Completed")), "release @counter@from", "lock [@counter@to] by @counter@to")
	got := wantSent(t, s.Episode(answerTo(lock[0], "Lock Acquisition Completed")), "call @counter@to get(none)")
	wantSent(t, s.Episode(answerTo(got[0], "5")), "release @counter@to")
	s.Output(history.Completed)
}

// An orchestration that breaks a rule of critical sections must fail and release its
// locks.
func TestLockEntities_FailsTheOrchestrationOnARuleViolation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(ctx *durable.Context)
		want string
	}{
		"another section":                        {func(ctx *durable.Context) { durable.LockEntities(ctx, to) }, "Must not enter another critical section"},
		"a child":                                {func(ctx *durable.Context) { durable.CallSubOrchestrator(ctx, transfer, 1) }, "cannot call suborchestrators"},
		"a signal to a locked entity":            {func(ctx *durable.Context) { durable.SignalFrom(ctx, from, (*counter).Add, 1) }, "Must not signal a locked entity"},
		"a call of an entity that is not locked": {func(ctx *durable.Context) { durable.CallEntity(ctx, to, (*counter).Add, 1) }, "not one of the locked entities"},
		"two calls at a time": {func(ctx *durable.Context) {
			durable.CallEntity(ctx, from, (*counter).Add, 1)
			durable.CallEntity(ctx, from, (*counter).Add, 1)
		}, "prior call to the same entity is still pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageOf(t, authors(durable.Orchestrator("Transfer", transfer), counters(),
				durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
					unlock := durable.LockEntities(ctx, from)
					defer unlock()
					c.do(ctx)
					return durable.Void{}, nil
				})))
			lock := wantSent(t, s.Start(nil), "lock [@counter@from] by @counter@from")
			words, _ := sent(t, s.Episode(answerTo(lock[0], "Lock Acquisition Completed")))
			if len(words) == 0 || words[len(words)-1] != "release @counter@from" {
				t.Errorf("sent %v, want a release of the lock at the end", words)
			}
			wantFailure(t, s, c.want)
		})
	}
}

func TestLockEntities_RejectsInvalidEntities(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock []durable.AnyEntity
		want string
	}{
		"none":                         {nil, "without entities"},
		"nil":                          {[]durable.AnyEntity{nil}, "nil entity"},
		"an unregistered entity":       {[]durable.AnyEntity{durable.EntityKey[teller]("x")}, "no entity has durable_test.teller"},
		"an invalid ID":                {[]durable.AnyEntity{durable.EntityID{Name: "a@b"}}, "must not contain @"},
		"an entity of another program": {[]durable.AnyEntity{from, durable.EntityID{Name: "Account", Key: "1"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withCounters(t, func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
				durable.LockEntities(ctx, c.lock...)
				return durable.Void{}, nil
			})
			s.Start(nil)
			if c.want != "" {
				wantFailure(t, s, c.want)
				return
			}
			wantSent(t, s.Actions, "lock [@account@1 @counter@from] by @account@1")
		})
	}
}
