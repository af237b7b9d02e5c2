package maporder

import (
	"context"
	"maps"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func reserve(ctx context.Context, item string) (string, error) { return item, nil }

func reserveAll(ctx context.Context, items []string) (string, error) { return items[0], nil }

func reserveEach(ctx *durable.Context, items []string) {
	for _, item := range items {
		reserveOne(ctx, item)
	}
}

func calls(ctx *durable.Context, stock map[string]int) (string, error) {
	for item := range stock { // want `^ranging over stock makes durable calls \(durable.CallActivity\) in another order on each replay; range over sorted keys, such as slices.Sorted\(maps.Keys\(m\)\)$`
		durable.CallActivity(ctx, reserve, item).Await()
	}
	for item := range maps.Keys(stock) { // want `ranging over stock makes durable calls \(durable.Context.Sleep\)`
		if item != "" {
			ctx.Sleep(1)
		}
	}
	ids := map[string]durable.UUID{}
	for item := range stock { // want `ranging over stock makes durable calls \(durable.Context.NewUUID\)`
		ids[item] = ctx.NewUUID()
	}
	for item := range stock { // want `ranging over stock makes durable calls \(durable.CallActivity via reserveOne\)`
		reserveOne(ctx, item)
	}
	take := func(item string) { reserveOne(ctx, item) }
	for item := range stock { // want `ranging over stock makes durable calls \(durable.CallActivity via reserveOne\)`
		take(item)
	}
	for item := range stock { // want `ranging over stock makes durable calls \(durable.Go\)`
		durable.Go(ctx, func() (int, error) { return len(item), nil })
	}
	return "", nil
}

func reserveOne(ctx *durable.Context, item string) { durable.CallActivity(ctx, reserve, item) }

type order struct{ ctx *durable.Context }

func (o order) all(stock map[string]int) {
	for item := range stock {
		reserveOne(o.ctx, item)
	}
}

func inHelper(ctx *durable.Context, stock map[string]int) (string, error) {
	order{ctx}.all(stock) // want `ranging over stock, reached via order.all, makes durable calls \(durable.CallActivity via reserveOne\)`
	return "", nil
}

func generic[M ~map[string]int](ctx *durable.Context, m M) (string, error) {
	for k := range m { // want `ranging over m makes durable calls`
		reserveOne(ctx, k)
	}
	return "", nil
}

func right(ctx *durable.Context, stock map[string]int) (string, error) {
	for _, item := range slices.Sorted(maps.Keys(stock)) {
		reserveOne(ctx, item)
	}
	for range stock {
		ctx.Sleep(1)
	}
	for item := range stock {
		ctx.Logger().Info("has", "item", item, "at", ctx.Now())
	}
	return "", nil
}
