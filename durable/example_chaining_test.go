package durable_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type cart struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

func reserveStock(_ context.Context, p cart) (string, error) { return "reservation of " + p.ID, nil }

func charge(_ context.Context, p cart) (string, error) {
	if p.Cents > 500 {
		return "", errors.New("card declined")
	}
	return "charged " + p.ID, nil
}

func release(_ context.Context, reservation string) (durable.Void, error) {
	fmt.Println("released the", reservation)
	return durable.Void{}, nil
}

func checkout(ctx *durable.Context, p cart) (string, error) {
	reservation, err := durable.CallActivity(ctx, reserveStock, p).Await()
	if err != nil {
		return "", fmt.Errorf("reserve stock: %w", err)
	}
	receipt, err := durable.CallActivity(ctx, charge, p).Await()
	if err != nil {
		// Compensate where the error is handled.
		if _, undo := durable.CallActivity(ctx, release, reservation).Await(); undo != nil {
			return "", errors.Join(err, undo)
		}
		return "", fmt.Errorf("charge card: %w", err)
	}
	return receipt, nil
}

// Call activities in sequence and compensate if one fails.
func Example_chaining() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Checkout", checkout),
		durable.Activity("ReserveStock", reserveStock),
		durable.Activity("Charge", charge),
		durable.Activity("Release", release),
	)
	runExample(registry, checkout, cart{ID: "41", Cents: 99})
	runExample(registry, checkout, cart{ID: "42", Cents: 999})
	// Output:
	// charged 41
	// released the reservation of 42
	// Failed with *durable.TaskFailedError: charge card: Task 'Charge' (#1) failed with an unhandled exception: card declined
}
