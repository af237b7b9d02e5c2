//go:build !race

package sim_test

// How much is simulated if nothing is said about it.
const (
	usualRuns   = 30  // seeds
	repetitions = 20  // of one seed
	largeRuns   = 10  // those of apps with large payloads, which take longer
	crashEvery  = 4   // of so many requests one is the last of a worker
	largeEvery  = 30  // the same of apps with large payloads
	foundAtMost = 100 // of the seeds that found one bug

	bankTransfers = 600

	repeatedSeeds = 10 // random ones, of which each is repeated once
)
