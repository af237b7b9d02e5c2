package main

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A Counter is an entity: a number that is stored under a key, and changed by one
// operation at a time. It need not be created.
//
//	curl -X POST -H 'Content-Type: application/json' -d 5 'http://localhost:7071/api/durabletask/entities/Counter/visits?op=add'
//	curl http://localhost:7071/api/durabletask/entities/Counter/visits
type Counter struct {
	Value int `json:"value"`
}

var errTooLittle = errors.New("the counter is too low for that")

// Add adds n, which may be negative, and returns the new value.
func (c *Counter) Add(_ *durable.EntityContext, n int) (int, error) {
	if c.Value+n < 0 {
		return 0, errTooLittle // what fails changes nothing
	}
	c.Value += n
	return c.Value, nil
}

// Get returns the value.
func (c *Counter) Get(*durable.EntityContext, durable.Void) (int, error) { return c.Value, nil }

// Reset makes it zero.
func (c *Counter) Reset(*durable.EntityContext, durable.Void) (durable.Void, error) {
	c.Value = 0
	return durable.Void{}, nil
}

// A Move says what [MoveCount] does.
type Move struct {
	From durable.EntityKey[Counter] `json:"from"`
	To   durable.EntityKey[Counter] `json:"to"`
	By   int                        `json:"by"`
}

// MoveCount takes from one counter what it adds to another, and returns both
// values. It locks them, so that no operation sees one changed without the other.
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
