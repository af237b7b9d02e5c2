package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

func lifecycleSleeper(ctx *durable.Context, n int) (string, error) {
	ctx.Sleep(time.Minute)
	switch {
	case n > 1:
		return durable.ContinueAsNew(ctx, lifecycleSleeper, n-1)
	case n == 0:
		return "", errors.New("it broke")
	}
	return "done", nil
}

// Like .NET, an instance that continues as new is reported as completed
// (WebJobs.Extensions.DurableTask/OutOfProcMiddleware.cs, CallOrchestratorAsync).
func TestLifecycle_ReportsStartsAndEnds(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		for _, test := range []struct {
			name      string
			input     int
			terminate bool
			want      string
		}{
			{name: "completes", input: 1, want: "Running Completed"},
			{name: "continues as new", input: 2, want: "Running Completed Running Completed"},
			{name: "fails", input: 0, want: "Running Failed: it broke"},
			{name: "terminated", input: 1, terminate: true, want: "Running Terminated: enough"},
		} {
			t.Run(fmt.Sprintf("%s, sessions %v", test.name, sessions), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var reported []string
					listen := func(e durable.LifecycleEvent) { // called by one session at a time
						line := e.Status.String()
						if e.Reason != "" {
							line += ": " + e.Reason
						}
						reported = append(reported, line)
						if e.Name != "Sleeper" || e.InstanceID != "i" {
							t.Errorf("event of %s %s, want Sleeper i", e.Name, e.InstanceID)
						}
						panic("a panic of the listener must have no effect")
					}
					h, r := memhub.New(), durable.NewRegistry(durable.Orchestrator("Sleeper", lifecycleSleeper))
					stop := run(t, h, r, durable.Config{Lifecycle: listen, ExtendedSessionIdle: sessionIdle(sessions)})
					c := durable.NewClient(h, r)
					i, err := durable.Start(t.Context(), c, lifecycleSleeper, test.input, durable.InstanceID("i"))
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(30 * time.Second)
					if test.terminate {
						if err := c.Terminate(t.Context(), i.ID, "enough"); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(10 * time.Minute)
					stop()
					if got := strings.Join(reported, " "); got != test.want {
						t.Errorf("events are %q, want %q", got, test.want)
					}
				})
			})
		}
	}
}
