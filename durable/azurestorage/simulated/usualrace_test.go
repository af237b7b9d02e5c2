//go:build race

package simulated_test

import "testing"

// usual returns the amounts with the race detector. It makes simulations ten times slower, and a
// second case of a kind rarely finds more than the first.
func usual() amounts {
	if testing.Short() {
		return amounts{sample: 5, startSample: 25, takeoverKills: 1}
	}
	return amounts{sample: 5, startSample: 5, takeoverKills: 1}
}
