//go:build race

package simulated_test

import "testing"

// usual returns how many cases run. The race detector makes simulations ten times as slow, and a
// second case of one kind seldom shows it more than the first.
func usual() amounts {
	if testing.Short() {
		return amounts{sample: 5, startSample: 25, takeoverKills: 1}
	}
	return amounts{sample: 5, startSample: 5, takeoverKills: 1}
}
