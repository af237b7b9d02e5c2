//go:build race

package sim_test

import "testing"

// usual returns the number of simulations unless a flag overrides it. The race detector makes simulations ten
// times slower, and a second run of the same kind seldom shows it more than the first.
func usual() amounts {
	return amounts{
		runs: 1, logRuns: 1, largeRuns: 1,
		crashEvery: 80, largeEvery: 400, cutEvery: 40,
		repetitions: 2, repeatedSeeds: 1,
		foundAtMost: 1, bankTransfers: 100, whyStates: 40,
		oneHub: testing.Short(),
	}
}
