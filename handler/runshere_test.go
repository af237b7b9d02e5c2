package handler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

func TestStatus_ListsTheActivitiesAndStepsThatRunHere(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	ship := func(context.Context, durable.Void) (int, error) {
		<-release
		return 0, nil
	}
	attempts := 0
	s := localApp(t, func(*Config) {}, durable.Activity("Ship", ship), durable.Orchestrator("Order", func(ctx *durable.Context, _ durable.Void) (int, error) {
		step := durable.Step(ctx, "charge", func(context.Context) (int, error) {
			if attempts++; attempts == 1 {
				return 0, errors.New("out of order")
			}
			<-release
			return 0, nil
		}, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Millisecond})
		durable.CallActivity(ctx, ship, durable.Void{})
		return step.Await()
	}))
	_ = got[ManagementPayload](t, s, "POST", managed+"orchestrators/Order/a")
	patience.Until(t, "the status lists both", func() bool {
		text := ""
		for _, r := range got[management.StatusPayload](t, s, "GET", managed+"instances/a").RunsHere {
			if _, err := time.Parse(time.RFC3339Nano, r.Since); err != nil {
				t.Error(err)
			}
			text += fmt.Sprintln(r.Kind, r.Name, r.TaskID, r.Attempt)
		}
		return text == "activity Ship 1 0\nstep charge 3 2\n"
	})
	close(release)
	patience.Until(t, "the instance has ended, and the status lists none", func() bool {
		i := got[management.StatusPayload](t, s, "GET", managed+"instances/a")
		return i.RuntimeStatus == history.Completed.String() && len(i.RunsHere) == 0
	})
}
