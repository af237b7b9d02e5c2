//go:build !race

package sim_test

import "testing"

// usual returns the number of simulations unless a flag overrides it.
func usual() amounts {
	if testing.Short() {
		return amounts{
			runs: 12, logRuns: 8, largeRuns: 2,
			crashEvery: 16, largeEvery: 120, cutEvery: 16,
			repetitions: 3, repeatedSeeds: 1,
			foundAtMost: 1, bankTransfers: 100, whyStates: 200,
		}
	}
	return amounts{
		runs: 20, logRuns: 12, largeRuns: 6,
		crashEvery: 6, largeEvery: 45, cutEvery: 2,
		repetitions: 10, repeatedSeeds: 3,
		foundAtMost: 40, bankTransfers: 600, whyStates: 600,
	}
}
