package simulated_test

import (
	"os"
	"runtime"
	"testing"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// amounts selects how many cases run.
type amounts struct {
	sample        int // every n-th case of a kind runs
	startSample   int // every n-th interrupted start runs
	takeoverKills int // number of requests at which a worker dies, per scenario; or repetitions with a death at each request
}

// TestMain runs simulations on one processor. On several, the scheduler decides the order of
// goroutines that are ready at the same instant.
func TestMain(m *testing.M) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}
