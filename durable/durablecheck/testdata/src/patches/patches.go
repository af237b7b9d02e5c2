package patches

import "github.com/durablefunctions-go/durablefunctions/durable"

const checkFraud = "check-fraud"

func wrong(ctx *durable.Context, id string) (bool, error) {
	if ctx.Patched(id) { // want `^Patched of id names a change with a value that may differ on replay; give each change its own constant$`
		return true, nil
	}
	defer ctx.Patched("late") // want `durable.Context.Patched runs in a defer`
	return asks(ctx, "a"), nil
}

func asks(ctx *durable.Context, name string) bool {
	return ctx.Patched("patch of " + name) // want `Patched of "patch of " \+ name names a change`
}

func right(ctx *durable.Context, id string) (bool, error) {
	return ctx.Patched(checkFraud) || ctx.Patched("a"+"b"), nil
}
