package durable_test

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func checkFraud(context.Context, cart) (bool, error) { return false, nil }

// buy checks for fraud since version 1.1. Older instances continue without the check.
func buy(ctx *durable.Context, c cart) (string, error) {
	if ctx.VersionAtLeast("1.1") {
		if ok, err := durable.CallActivity(ctx, checkFraud, c).Await(); err != nil || !ok {
			return "held", err
		}
	}
	return durable.CallActivity(ctx, charge, c).Await()
}

// buyLater is a rewrite of buy under the same name. Both are registered until the last
// old instance has ended.
func buyLater(*durable.Context, cart) (string, error) { return "in the basket", nil }

// buyAll runs an instance of each version.
func buyAll(ctx *durable.Context, c cart) ([]string, error) {
	const byName = durable.OrchestratorName[cart, string]("Buy")
	return durable.AwaitAll(
		ctx,
		byName.Call(ctx, c, durable.Version("1.0")),
		byName.Call(ctx, c, durable.Version("1.1")),
		durable.CallSubOrchestrator(ctx, buyLater, c)) // the version that buyLater is registered for
}

// Run new code next to instances that started with the old code.
func Example_versions() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Buy", buy), // all versions without a function of their own
		durable.Orchestrator("Buy", buyLater, durable.Version("2.0")),
		durable.Orchestrator("BuyAll", buyAll),
		durable.Activity("CheckFraud", checkFraud),
		durable.Activity("Charge", charge),
	)
	runExample(registry, buyAll, cart{ID: "41", Cents: 99})
	// Output: [charged 41 held in the basket]
}
