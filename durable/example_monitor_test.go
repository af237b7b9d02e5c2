package durable_test

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type watch struct {
	Job   string        `json:"job"`
	Every time.Duration `json:"every"`
	Round int           `json:"round"`
}

func jobDone(_ context.Context, w watch) (bool, error) { return w.Round == 3, nil }

func monitor(ctx *durable.Context, w watch) (string, error) {
	done, err := durable.CallActivity(ctx, jobDone, w).Await()
	if err != nil {
		return "", err
	}
	if done {
		return fmt.Sprint(w.Job, " is done in round ", w.Round), nil
	}
	ctx.Sleep(w.Every)
	w.Round++
	return durable.ContinueAsNew(ctx, monitor, w)
}

// Poll regularly with a history that does not grow.
func Example_monitor() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Monitor", monitor),
		durable.Activity("JobDone", jobDone),
	)
	runExample(registry, monitor, watch{Job: "render", Every: time.Millisecond})
	// Output: render is done in round 3
}
