//go:build race

package sim_test

// The race detector makes simulations several times as slow.
const (
	usualRuns   = 20
	repetitions = 5
	crashEvery  = 7

	bankTransfers = 200

	repeatedSeeds = 2
)
