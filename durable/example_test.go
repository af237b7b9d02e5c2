package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// runExample starts an instance on an in-memory hub, calls the meanwhile functions,
// waits for the instance and prints its output. It keeps the examples short.
func runExample[I, O any](registry *durable.Registry, orch func(*durable.Context, I) (O, error), in I, meanwhile ...func(context.Context, *durable.Client, durable.InstanceID) error) {
	ctx, stop := context.WithCancel(context.Background())
	hub := memhub.New()
	stopped := make(chan error)
	go func() {
		stopped <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			fmt.Println(err)
		}
	}()

	client := durable.NewClient(hub, registry)
	instance, err := durable.Start(ctx, client, orch, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range meanwhile {
		if err := f(ctx, client, instance.ID); err != nil {
			fmt.Println(err)
		}
	}
	out, err := instance.Wait(ctx)
	if err != nil {
		if failed, ok := errors.AsType[*durable.OrchestrationFailedError](err); ok && failed.Output != nil {
			fmt.Println(failed.Status, "with", *failed.Output)
			return
		}
		fmt.Println(err)
		return
	}
	fmt.Println(out)
}
