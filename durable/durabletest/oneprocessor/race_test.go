//go:build race

package oneprocessor_test

import (
	"os"
	"runtime"
	"testing"
)

func TestOneProcessor_AppliesWithTheRaceDetector(t *testing.T) {
	if n := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && n != 1 {
		t.Errorf("the test uses %d processors; want 1", n)
	}
}
