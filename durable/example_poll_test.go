package durable_test

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func export(ctx *durable.Context, file string) (string, error) {
	policy := durable.PollPolicy{Interval: time.Millisecond, Coefficient: 2, MaxInterval: time.Minute}
	return durable.Poll(ctx, "export", policy, func(_ context.Context, n int) (string, bool, error) {
		return fmt.Sprint(file, " is ready"), n >= 3, nil
	}).AwaitTimeout(24 * time.Hour)
}

// Ask another system until it is done, with one task in the history.
func ExamplePoll() {
	registry := durable.NewRegistry(durable.Orchestrator("Export", export))
	runExample(registry, export, "report.pdf")
	// Output: report.pdf is ready
}
