// Package providertest is the conformance test suite for storage providers.
//
// [Exercise] calls a provider only through its interfaces and builds checkpoints by hand. No
// orchestrator runs. The suite checks exactly the rules of package provider. It accepts all
// other behavior, for example a redelivered message, or the delivery of a message that no
// instance waits for.
package providertest

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Hub is an empty task hub with the properties of its provider that the suite needs.
type Hub struct {
	// Provider accesses the hub. Its Run method has not been called.
	Provider provider.Provider

	// Reopen opens the same hub again, as a new process would. The suite calls it after Run has
	// returned. From then on it uses earlier values only to check that their work items have no
	// effect. Nil skips the tests that need it, for a hub that does not outlive its provider.
	Reopen func(t *testing.T) provider.Provider

	// Kill simulates a crash of the process at the time of the call. It opens the hub as the
	// crash leaves it, which may be a copy, and need not stop Provider. Nil skips the tests
	// that need it.
	Kill func(t *testing.T) provider.Provider

	// OpenEmpty opens another, empty hub of the same provider. Nil skips the tests that need it.
	OpenEmpty func(t *testing.T) provider.Provider

	// Damage makes the stored data of an instance unreadable. Nil skips the tests that need it.
	Damage func(t *testing.T, id string)

	// Patience is the time limit for each expected event. Default 20 s.
	Patience time.Duration
	// Quiet is the observation time for an event that must not happen. Default 100 ms.
	Quiet time.Duration

	// DrainTimeout is the provider's drain timeout. It should be short, but longer than Quiet. 0
	// skips the test of the timeout.
	DrainTimeout time.Duration
	// IsRealTime reports that the tests run outside of a synctest bubble. A slow machine may exceed
	// DrainTimeout then, and tests whose work is in flight at that time are skipped.
	IsRealTime bool
	// AbandonDelay is the minimum time until work is redelivered after its first Abandon; 0 if
	// it is unknown. After the second Abandon the delay must be at least 1.5 times as long.
	AbandonDelay time.Duration
	// Visibility is the duration of a lock that is not renewed; 0 if locks do not expire.
	Visibility time.Duration
	// Order is the order guarantee for messages of one sender to one instance.
	Order Order
}

// area is one part of the contract. It has a test for each rule.
type area struct {
	name  string
	tests []test
}

type test struct {
	name string
	run  func(*world)
}

// Exercise runs the suite as subtests of t, grouped by areas of the contract. It calls open in
// each subtest to get a new hub. open may call t.Parallel, and registers its cleanup with t.
func Exercise(t *testing.T, open func(t *testing.T) Hub) {
	t.Helper()
	ExerciseIn(t, WithoutWrapper, open)
}

// ExerciseIn is like [Exercise] but runs each test through in, for example in synctest.Test. in
// receives the subtest's t and may pass another one to test.
func ExerciseIn(t *testing.T, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Hub) {
	t.Helper()
	exercise(t, 1, in, open)
}

// ExerciseSample is like [ExerciseIn]. With -short it splits each area into groups of the given
// number of consecutive tests and runs only the first test of each group.
func ExerciseSample(t *testing.T, group int, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Hub) {
	t.Helper()
	if !testing.Short() {
		group = 1
	}
	exercise(t, group, in, open)
}

// WithoutWrapper calls test. Pass it to [ExerciseSample] to run each test without a wrapper.
func WithoutWrapper(t *testing.T, test func(t *testing.T)) { test(t) }

func exercise(t *testing.T, group int, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Hub) {
	t.Helper()
	for _, a := range []area{
		starting, racing, children, messages, order, exact, workItems, sessions, commits, steps, polls, continuing, statuses, activities,
		timers, ordering, payloads, identifiers, queries, entities, endings, optional, checking, copying, stopping, restarting,
	} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for i, tt := range a.tests {
				t.Run(tt.name, func(t *testing.T) {
					if i%group > 0 {
						t.Skip("left to scripts/test --full")
					}
					in(t, func(t *testing.T) { tt.run(newWorld(t, open(t))) })
				})
			}
		})
	}
}
