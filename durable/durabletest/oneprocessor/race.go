//go:build race

package oneprocessor

import (
	"os"
	"runtime"
	"testing"
)

func init() {
	testing.Init() // sets the default of -test.parallel, which is the number of processors now
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}
