//go:build race

package sim_test

// The race detector makes simulations ten times as slow, and what one course of events
// does not show it the next seldom does: a sample of each kind is enough. scripts/test
// runs the rest without it.
const (
	usualRuns   = 2
	repetitions = 2
	largeRuns   = 1
	crashEvery  = 80
	largeEvery  = 400
	foundAtMost = 1

	bankTransfers = 100

	repeatedSeeds = 1
)
