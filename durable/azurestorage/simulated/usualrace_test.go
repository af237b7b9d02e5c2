//go:build race

package simulated_test

// The race detector makes simulations ten times as slow, and what one case does not
// show it the next of its kind seldom does. scripts/test runs all of them without it.
const (
	sample        = 5
	takeoverKills = 1
)
