//go:build !race

package sim_test

// How much is simulated if nothing is said about it.
const (
	usualRuns   = 60  // seeds
	repetitions = 20  // of one seed
	crashEvery  = 2   // of so many requests one is the last of a worker
	foundAtMost = 100 // of the seeds that found one bug

	bankTransfers = 600

	repeatedSeeds = 10 // random ones, of which each is repeated once
)
