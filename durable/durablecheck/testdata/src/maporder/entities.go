package maporder

import (
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type counter struct{ at time.Time }

// Add is an operation of an entity: it may do anything.
func (c *counter) Add(ctx *durable.EntityContext, n int) (int, error) { // want Add:"mutates"
	c.at = time.Now()
	for key := range map[string]int{"a": n} {
		durable.SignalFrom(ctx, durable.EntityKey[counter](key), (*counter).Add, n)
	}
	return n, nil
}

func entities(ctx *durable.Context, stock map[string]int) (string, error) {
	for item, n := range stock { // want `ranging over stock makes durable calls \(durable.SignalFrom\)`
		durable.SignalFrom(ctx, durable.EntityKey[counter](item), (*counter).Add, n)
	}
	for item, n := range stock { // want `ranging over stock makes durable calls \(durable.EntityOperation.SignalFrom\)`
		durable.EntityOperation[int]("add").SignalFrom(ctx, durable.EntityKey[counter](item), n)
	}
	for item, n := range stock { // want `ranging over stock makes durable calls \(durable.CallEntity\)`
		durable.CallEntity(ctx, durable.EntityKey[counter](item), (*counter).Add, n)
	}
	for _, item := range slices.Sorted(maps.Keys(stock)) {
		durable.SignalFrom(ctx, durable.EntityKey[counter](item), (*counter).Add, stock[item])
	}
	return "", nil
}

func transfer(ctx *durable.Context, n int) (string, error) {
	unlock := durable.LockEntities(ctx, durable.EntityKey[counter]("a"), durable.EntityKey[counter]("b"))
	defer unlock()
	durable.CallEntity(ctx, durable.EntityKey[counter]("a"), (*counter).Add, n)
	return "", nil
}
