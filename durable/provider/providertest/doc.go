// Package providertest checks that a storage provider keeps the promises of
// package provider.
//
// [Exercise] drives a provider through its interface alone, with checkpoints
// made by hand: no orchestrator runs. It is strict about what package provider
// says and tolerates all else, such as a message that comes twice, or one that
// nobody wants being handed out or not.
package providertest

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Hub is an empty task hub, and what has to be known about its provider to
// exercise it.
type Hub struct {
	// Provider gives access to the hub. Its Run has not been called.
	Provider provider.Provider

	// Reopen gives access to the same hub through another value, as a process
	// would that follows this one. The suite calls it when Run has returned, and
	// uses Provider, or what Reopen returned before, only to see that what it
	// handed out does not count any more. It is nil if the hub does not outlive
	// its provider; what needs it is then skipped.
	Reopen func(t *testing.T) provider.Provider

	// Kill gives access to what is left of the hub when this process dies, at
	// the time of the call and without having been able to do anything. It may
	// leave Provider as it is. It is nil if that cannot be had; what needs it is
	// then skipped.
	Kill func(t *testing.T) provider.Provider

	// Another opens another hub of the same provider, which is empty. It is nil
	// if there cannot be two; what needs it is then skipped.
	Another func(t *testing.T) provider.Provider

	// Damage makes what is stored of an instance one that cannot be read. It is nil if
	// that cannot be had; what needs it is then skipped.
	Damage func(t *testing.T, id string)

	// Patience is how long the suite waits for what must happen. Default 20 s.
	Patience time.Duration
	// Quiet is how long it watches for what must not happen. Default 100 ms.
	Quiet time.Duration

	// DrainTimeout is the provider's, which should be short but longer than
	// Quiet.
	DrainTimeout time.Duration
	// AbandonDelay is the least time until what was abandoned for the first time
	// is handed out again; 0 if that is not known. The second time it takes half
	// as long again at least.
	AbandonDelay time.Duration
	// Visibility is how long what was handed out stays locked when it is not
	// renewed; 0 if locks do not end.
	Visibility time.Duration
	// Order is how far the order is kept in which one sender sends.
	Order Order
}

// An area is a part of the contract, with a test for each of its sentences.
type area struct {
	name  string
	tests []test
}

type test struct {
	name string
	run  func(*world)
}

// Exercise runs the suite as subtests of t. It calls open for each of them, to
// get a hub of its own; open may make the subtest parallel, and registers with
// its t what is to be done at the end.
func Exercise(t *testing.T, open func(t *testing.T) Hub) {
	t.Helper()
	ExerciseIn(t, Directly, open)
}

// ExerciseIn is [Exercise] with each test run by in, such as synctest.Test, which
// gets the test's t and may give test another one.
func ExerciseIn(t *testing.T, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Hub) {
	t.Helper()
	exercise(t, 1, in, open)
}

// ExerciseSample is [ExerciseIn]. In a short run it runs one test of each group of
// consecutive tests of an area, and skips the others.
func ExerciseSample(t *testing.T, group int, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Hub) {
	t.Helper()
	if !testing.Short() {
		group = 1
	}
	exercise(t, group, in, open)
}

// Directly calls test.
func Directly(t *testing.T, test func(t *testing.T)) { test(t) }

func exercise(t *testing.T, group int, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Hub) {
	t.Helper()
	for _, a := range []area{
		starting, racing, children, messages, order, exact, workItems, sessions, commits, continuing, statuses, activities,
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
