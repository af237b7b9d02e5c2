// Package failing has one test of each outcome. The tests of scripts/runtests run it.
package failing

import (
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestPasses(t *testing.T) { t.Log("a line of a test that passes") }

func TestFails(t *testing.T) {
	t.Run("case one", func(t *testing.T) {
		t.Error("got 1; want 2")
		t.Log(strings.Repeat("a line of the log\n", 30))
	})
	t.Run("case two", func(t *testing.T) {})
}

func TestSkips(t *testing.T) { t.Skip("no such tool") }

func TestRunsInAnotherPart(t *testing.T) { t.Skip("runs in another part: without the race detector") }

func TestSkipsInShortMode(t *testing.T) {
	if testing.Short() {
		t.Skip("left to scripts/test --full")
	}
}

func TestHangs(t *testing.T) {
	if os.Getenv("FAILING_HANGS") == "" {
		t.Skip("only on request")
	}
	for range 6 { // longer than the limit of this part, with progress
		t.Run("slow", func(*testing.T) { time.Sleep(time.Second) })
	}
	t.Log("about to wait")
	select {}
}

// TestCrashes crashes on another goroutine while its parallel subtests are paused. The goroutines that it prints
// have more lines than the report.
func TestCrashes(t *testing.T) {
	if os.Getenv("FAILING_CRASHES") == "" {
		t.Skip("only on request")
	}
	debug.SetTraceback("all")
	for range 300 {
		go func() { select {} }()
	}
	for range 25 {
		t.Run("paused", func(t *testing.T) { t.Parallel() })
	}
	t.Run("crashing", func(*testing.T) {
		go panic("the reason of the crash")
		select {}
	})
}

// TestLeavesAProcess ends while a process that it started holds its standard output.
func TestLeavesAProcess(t *testing.T) {
	child := exec.Command("sleep", "600")
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
}
