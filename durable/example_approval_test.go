package durable_test

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type decision struct {
	Approved bool   `json:"approved"`
	By       string `json:"by"`
}

const (
	approvalEvent = durable.Event[decision]("Approval")
	withdrawal    = durable.Event[durable.Void]("Withdrawn")
)

func approve(ctx *durable.Context, limit time.Duration) (string, error) {
	d, err := approvalEvent.Wait(ctx).AwaitTimeout(limit)
	switch {
	case errors.Is(err, durable.ErrTimeout):
		return "escalated", nil
	case err != nil:
		return "", err
	case !d.Approved:
		return "refused by " + d.By, nil
	}
	return "approved by " + d.By, nil
}

// Wait for a decision of a person, but not forever.
func Example_humanInteraction() {
	registry := durable.NewRegistry(durable.Orchestrator("Approve", approve))
	runExample(registry, approve, 72*time.Hour, func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return approvalEvent.Raise(ctx, c, id, decision{Approved: true, By: "Ada"})
	})
	runExample(registry, approve, time.Millisecond)
	// Output:
	// approved by Ada
	// escalated
}

func approveOrWithdraw(ctx *durable.Context, limit time.Duration) (string, error) {
	decided, gone, deadline := approvalEvent.Wait(ctx), withdrawal.Wait(ctx), ctx.Timer(limit)
	switch durable.AwaitAny(ctx, decided, gone, deadline) {
	case decided:
		d, err := decided.Await() // complete: returns immediately
		return "decided by " + d.By, err
	case gone:
		return "withdrawn", nil
	default:
		return "lapsed", nil
	}
}

// Continue with the first of several tasks that completes.
func ExampleAwaitAny() {
	registry := durable.NewRegistry(durable.Orchestrator("ApproveOrWithdraw", approveOrWithdraw))
	runExample(registry, approveOrWithdraw, time.Hour, func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return withdrawal.Raise(ctx, c, id, durable.Void{})
	})
	runExample(registry, approveOrWithdraw, time.Millisecond)
	// Output:
	// withdrawn
	// lapsed
}
