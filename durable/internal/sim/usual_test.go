//go:build !race

package sim_test

import "testing"

// usual returns how much is simulated unless a flag says otherwise.
func usual() amounts {
	if testing.Short() {
		return amounts{
			runs: 12, logRuns: 8, largeRuns: 2,
			crashEvery: 16, largeEvery: 120, cutEvery: 16,
			repetitions: 3, repeatedSeeds: 6,
			foundAtMost: 1, bankTransfers: 100,
		}
	}
	return amounts{
		runs: 30, logRuns: 20, largeRuns: 10,
		crashEvery: 4, largeEvery: 30, cutEvery: 2,
		repetitions: 20, repeatedSeeds: 20,
		foundAtMost: 100, bankTransfers: 600,
	}
}
