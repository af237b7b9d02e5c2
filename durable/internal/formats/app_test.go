package formats_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// The functions below left the hubs in testdata. Their code must not change, because it replays recorded histories.

const delivered = durable.Event[string]("Delivered")

// stock is the state of an entity.
type stock struct{ Count int }

func (s *stock) Add(_ *durable.EntityContext, n int) (int, error) {
	s.Count += n
	return s.Count, nil
}

const apples, pears = durable.EntityKey[stock]("apples"), durable.EntityKey[stock]("pears")

func charge(_ context.Context, cents int) (string, error) {
	return fmt.Sprintf("charged %d", cents), nil
}

// harborOpens is a time of the bubbles, whose clocks start at midnight.
var harborOpens = time.Date(2000, 1, 1, 3, 30, 0, 0, time.UTC)

func ship(_ context.Context, to string) (string, error) {
	if time.Now().Before(harborOpens) {
		return "", errors.New("the harbor is closed")
	}
	return "shipped to " + to, nil
}

func order(ctx *durable.Context, cents int) (string, error) {
	receipt, err := durable.CallActivity(ctx, charge, cents).Await()
	if err != nil {
		return "", err
	}
	ctx.SetCustomStatus("waits for its delivery")
	by, err := delivered.Wait(ctx).Await()
	return receipt + ", delivered by " + by, err
}

func family(ctx *durable.Context, cents int) (string, error) {
	children, err := durable.AwaitAll(ctx,
		durable.CallSubOrchestrator(ctx, order, cents, durable.InstanceID("child-1")),
		durable.CallSubOrchestrator(ctx, order, cents+1, durable.InstanceID("child-2")),
	)
	return fmt.Sprint(children), err
}

func rest(ctx *durable.Context, hours int) (string, error) {
	ctx.Sleep(time.Duration(hours) * time.Hour)
	return fmt.Sprintf("rested %d hours", hours), nil
}

func rounds(ctx *durable.Context, n int) (int, error) {
	if n < 3 {
		return durable.ContinueAsNew(ctx, rounds, n+1)
	}
	_, err := delivered.Wait(ctx).Await()
	return n, err
}

func inventory(ctx *durable.Context, n int) (int, error) {
	unlock := durable.LockEntities(ctx, apples, pears)
	defer unlock()
	if _, err := delivered.Wait(ctx).Await(); err != nil {
		return 0, err
	}
	return durable.CallEntity(ctx, apples, (*stock).Add, n).Await()
}

func shipment(ctx *durable.Context, to string) (string, error) {
	return durable.CallActivity(ctx, ship, to, durable.RetryPolicy{MaxAttempts: 5, FirstInterval: time.Hour}).Await()
}

func measure(ctx *durable.Context, text string) (int, error) {
	_, err := delivered.Wait(ctx).Await()
	return len(text), err
}

func refuse(*durable.Context, durable.Void) (durable.Void, error) {
	return durable.Void{}, errors.New("out of stock")
}

var registry = durable.NewRegistry(
	durable.Activity("Charge", charge), durable.Activity("Ship", ship), durable.Entity("Stock", durable.Op("add", (*stock).Add)),
	durable.Orchestrator("Order", order), durable.Orchestrator("Family", family), durable.Orchestrator("Rest", rest),
	durable.Orchestrator("Rounds", rounds), durable.Orchestrator("Inventory", inventory), durable.Orchestrator("Shipment", shipment),
	durable.Orchestrator("Measure", measure), durable.Orchestrator("Refuse", refuse),
)
