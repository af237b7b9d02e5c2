package testshare

import "testing"

// Amount returns the number of repetitions of a test: full, or reduced under -short or the race
// detector. A race that the reduced number does not show rarely shows with more.
func Amount(full, reduced int) int {
	if underRace || testing.Short() {
		return reduced
	}
	return full
}
