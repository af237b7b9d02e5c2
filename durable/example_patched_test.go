package durable_test

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// buyChecked was first deployed without the check for fraud. The check also applies to
// running instances that have not called charge yet.
func buyChecked(ctx *durable.Context, c cart) (string, error) {
	if _, err := durable.CallActivity(ctx, reserveStock, c).Await(); err != nil {
		return "", err
	}
	if ctx.Patched("check-fraud") {
		if _, err := durable.CallActivity(ctx, checkFraud, c).Await(); err != nil {
			return "", err
		}
	}
	return durable.CallActivity(ctx, charge, c).Await()
}

// Change code while instances are running. One instance has already called charge with
// the old code and continues without the check.
func ExampleContext_Patched() {
	activities := []*durable.Registration{
		durable.Activity("ReserveStock", reserveStock), durable.Activity("CheckFraud", checkFraud), durable.Activity("Charge", charge),
	}
	start := &history.ExecutionStarted{Header: history.Header{EventID: -1}, Name: "Order", Input: new(`{"id":"41"}`)}
	before := []history.Event{
		&history.OrchestratorStarted{Header: history.Header{EventID: -1}}, start,
		&history.TaskScheduled{Header: history.Header{EventID: 0}, Name: "ReserveStock"}, &history.OrchestratorCompleted{},
		&history.OrchestratorStarted{Header: history.Header{EventID: -1}},
		&history.TaskCompleted{Header: history.Header{EventID: -1}, TaskScheduledID: 0, Result: new(`"ok"`)},
		&history.TaskScheduled{Header: history.Header{EventID: 1}, Name: "Charge"}, &history.OrchestratorCompleted{},
	}
	registry := durable.NewRegistry(append(activities, durable.Orchestrator("Order", buyChecked))...)
	fmt.Println("can continue:", registry.Verify(before) == nil)
	runExample(registry, buyChecked, cart{ID: "42"})
	// Output:
	// can continue: true
	// charged 42
}
