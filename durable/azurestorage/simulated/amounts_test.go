package simulated_test

import (
	"os"
	"runtime"
	"testing"
)

// amounts says how many cases run.
type amounts struct {
	sample        int // of so many cases of one kind, one runs
	startSample   int // of so many interrupted starts, one runs
	takeoverKills int // points at which a worker dies, of each kind of instance
}

// TestMain runs simulations on one processor. On several, the scheduler decides which of the
// goroutines that are ready at one instant comes first.
func TestMain(m *testing.M) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}
