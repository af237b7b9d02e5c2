package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// waitForSomethingElse blocks on a channel, which orchestrators must not do.
//
//go:noinline
func waitForSomethingElse(c chan string) string { return <-c }

func TestWatchdog_ReportsAnOrchestratorThatDoesNotYield(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			c := make(chan string)
			b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
				if _, err := callActivity(x, "Hello", "x"); err != nil {
					return nil, err
				}
				return encode(waitForSomethingElse(c)), nil
			}), change)
			b.start("i", "O", nil)
			b.start("j", "HelloSeq", nil) // unknown; shows whose stacks are reported
			time.Sleep(25 * time.Second)
			if n := b.log.count("orchestrator does not yield"); n != 1 { // after 10 s
				t.Errorf("there were %d reports in 25 s, want 1:\n%s", n, b.log)
			}
			for line := range strings.Lines(b.log.String()) {
				if strings.Contains(line, "does not yield") && (!strings.Contains(line, "waitForSomethingElse") ||
					!strings.Contains(line, "instanceId=i ") || !strings.Contains(line, "name=O ")) {
					t.Errorf("the report lacks the instance, the function or the stack:\n%s", line)
				}
			}
			c <- "at last"
			b.wantOutput("i", history.Completed, `"at last"`)
			if n := b.log.count("orchestrator has yielded"); n != 1 {
				t.Errorf("the return was logged %d times, want 1:\n%s", n, b.log)
			}
		})
	}
}

func TestWatchdog_DoesNotReportAWaitingOrchestrator(t *testing.T) {
	for _, change := range []func(*dispatch.Config){func(*dispatch.Config) {}, extendedSessions} {
		bubble(t, func(b *bench) {
			b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
				sleepFor(x, time.Hour)
				return nil, nil
			}), change)
			b.start("i", "O", nil)
			b.wantOutput("i", history.Completed, "<nil>")
			if n := b.log.count("yield"); n != 0 {
				t.Errorf("the watchdog reported the orchestrator:\n%s", b.log)
			}
		})
	}
}
