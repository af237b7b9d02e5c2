//go:build !race

package handover_test

const underRace = false
