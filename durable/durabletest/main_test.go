package durabletest_test

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler"
)

// hubToolRole is the environment variable that makes the test binary run as an app.
const hubToolRole = "DURABLETEST_HUB_TOOL"

// TestMain fails if a goroutine or a coroutine still exists after the tests.
func TestMain(m *testing.M) {
	if os.Getenv(hubToolRole) != "" {
		handler.Main(handler.App{})
	}
	code := m.Run()
	// A goroutine that has signaled its end may still exist for a moment.
	deadline := time.Now().Add(patience.Limit())
	for code == 0 {
		left := leaked()
		if left == "" {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "goroutines were left behind:\n"+left)
			code = 1
		}
		time.Sleep(time.Millisecond) // real time: all tests have ended
	}
	os.Exit(code)
}

func leaked() string {
	var all, left strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		return err.Error()
	}
	for g := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(g, "durablefunctions/durable") && !strings.Contains(g, "durabletest_test.TestMain") {
			left.WriteString(g + "\n\n")
		}
	}
	return left.String()
}
