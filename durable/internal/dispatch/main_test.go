package dispatch_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the package if a test leaves a goroutine of this project behind. Inside
// bubbles, synctest checks this.
func TestMain(m *testing.M) {
	code := m.Run()
	deadline := time.Now().Add(30 * time.Second)
	for code == 0 {
		left := leaked()
		if left == "" {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "goroutines are left:\n\n"+left)
			code = 1
		}
		runtime.Gosched()
	}
	os.Exit(code)
}

func leaked() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for _, g := range strings.Split(string(buf), "\n\n")[1:] { // the first is this one
		if strings.Contains(g, "durablefunctions/durable/") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
