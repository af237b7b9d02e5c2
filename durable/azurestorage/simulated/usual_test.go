//go:build !race

package simulated_test

import "testing"

// usual returns the amounts without the race detector.
func usual() amounts {
	if testing.Short() {
		return amounts{sample: 3, startSample: 15, takeoverKills: 1}
	}
	return amounts{sample: 1, startSample: 1, takeoverKills: 3}
}
