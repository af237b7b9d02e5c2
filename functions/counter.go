package main

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Counter is an entity: a number that is stored under a key. One operation at a time
// changes it. The first operation creates it.
//
//	curl -X POST -H 'Content-Type: application/json' -d 5 'http://localhost:7071/api/durabletask/entities/Counter/visits?op=add'
//	curl http://localhost:7071/api/durabletask/entities/Counter/visits
type Counter struct {
	Value int `json:"value"`
}

var errTooLittle = errors.New("the counter is too low for that")

// Add adds n, which may be negative, and returns the new value. It fails if the value would
// be negative.
func (c *Counter) Add(_ *durable.EntityContext, n int) (int, error) {
	if c.Value+n < 0 {
		return 0, errTooLittle // a failed operation changes nothing
	}
	c.Value += n
	return c.Value, nil
}

// Get returns the current value.
func (c *Counter) Get(*durable.EntityContext, durable.Void) (int, error) { return c.Value, nil }

// Reset sets the value to zero.
func (c *Counter) Reset(*durable.EntityContext, durable.Void) (durable.Void, error) {
	c.Value = 0
	return durable.Void{}, nil
}

// Move is the input of [MoveCount].
type Move struct {
	From durable.EntityKey[Counter] `json:"from"`
	To   durable.EntityKey[Counter] `json:"to"`
	By   int                        `json:"by"`
}

// MoveCount moves an amount from one counter to another and returns the new values. It
// locks both counters, so that no other operation sees the intermediate state.
func MoveCount(ctx *durable.Context, m Move) ([]int, error) {
	if m.From == m.To || m.By <= 0 {
		return nil, errors.New(`the input must be like {"from": "a", "to": "b", "by": 3}`)
	}
	unlock := durable.LockEntities(ctx, m.From, m.To)
	defer unlock()
	left, err := durable.CallEntity(ctx, m.From, (*Counter).Add, -m.By).Await()
	if err != nil {
		return nil, fmt.Errorf("take %d from %s: %w", m.By, m.From, err)
	}
	got, err := durable.CallEntity(ctx, m.To, (*Counter).Add, m.By).Await()
	return []int{left, got}, err
}
