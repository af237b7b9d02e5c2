//go:build race

package oneprocessor

import (
	"os"
	"runtime"
)

func init() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}
