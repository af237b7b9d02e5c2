package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// DeclinedError has a name in the registry, so the orchestrator gets it with its
// fields.
type DeclinedError struct {
	Reason string `json:"reason"`
}

func (e *DeclinedError) Error() string { return "declined: " + e.Reason }

type trip struct {
	Hotel, Flight string
	Cents         int64
}

func bookHotel(_ context.Context, t trip) (string, error)  { return "room at the " + t.Hotel, nil }
func bookFlight(_ context.Context, t trip) (string, error) { return "seat to " + t.Flight, nil }

func pay(ctx context.Context, t trip) (string, error) {
	if t.Cents > 1000 {
		// Retrying does not help.
		return "", durable.NonRetryable(&DeclinedError{Reason: "too dear"})
	}
	return "receipt", nil
}

func cancelBooking(_ context.Context, booking string) (durable.Void, error) {
	fmt.Println("canceled the", booking)
	return durable.Void{}, nil
}

var patiently = durable.RetryPolicy{MaxAttempts: 5, FirstInterval: 5 * time.Second, Coefficient: 2}

func bookTrip(ctx *durable.Context, t trip) (_ string, err error) {
	var booked []string
	for _, book := range []func(context.Context, trip) (string, error){bookHotel, bookFlight} {
		booking, err := durable.CallActivity(ctx, book, t, patiently).Await()
		if err != nil {
			return "", errors.Join(err, undo(ctx, booked))
		}
		booked = append(booked, booking)
	}
	receipt, err := durable.CallActivity(ctx, pay, t, patiently).Await()
	var declined *DeclinedError
	switch {
	case errors.As(err, &declined):
		return "not booked, since the card is " + declined.Reason, undo(ctx, booked)
	case err != nil:
		return "", errors.Join(err, undo(ctx, booked))
	}
	return receipt, nil
}

// undo compensates for bookings in reverse order.
func undo(ctx *durable.Context, booked []string) error {
	for i := len(booked) - 1; i >= 0; i-- {
		if _, err := durable.CallActivity(ctx, cancelBooking, booked[i], patiently).Await(); err != nil {
			return err
		}
	}
	return nil
}

// A saga: each step is retried if it fails, and all completed steps are compensated if
// a step fails for good.
func Example_saga() {
	registry := durable.NewRegistry(
		durable.Orchestrator("BookTrip", bookTrip),
		durable.Activity("BookHotel", bookHotel),
		durable.Activity("BookFlight", bookFlight),
		durable.Activity("Pay", pay),
		durable.Activity("CancelBooking", cancelBooking),
		durable.ErrorType[*DeclinedError]("Declined"),
	)
	runExample(registry, bookTrip, trip{"Ritz", "Kyoto", 999})
	runExample(registry, bookTrip, trip{"Ritz", "Kyoto", 9999})
	// Output:
	// receipt
	// canceled the seat to Kyoto
	// canceled the room at the Ritz
	// not booked, since the card is too dear
}
