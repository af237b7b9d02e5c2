//go:build !race

package simulated_test

const (
	sample        = 1 // of so many cases of one kind one is tried
	takeoverKills = 3 // points at which a worker dies, of each kind of instance
)
