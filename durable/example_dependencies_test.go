package durable_test

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// shop contains the dependencies of its activities, such as a database connection.
type shop struct{ prices map[string]int }

func (s *shop) price(_ context.Context, item string) (int, error) {
	price, ok := s.prices[item]
	if !ok {
		return 0, fmt.Errorf("unknown item %s", item)
	}
	return price, nil
}

func total(ctx *durable.Context, items []string) (int, error) {
	sum := 0
	for _, item := range items {
		price, err := durable.CallActivity(ctx, (*shop)(nil).price, item).Await()
		if err != nil {
			return 0, err
		}
		sum += price
	}
	return sum, nil
}

// The fields of a struct are the dependencies of the activities that are its methods.
// Register the method value of a struct. Calls only name the method.
func Example_dependencies() {
	s := &shop{prices: map[string]int{"apple": 20, "pear": 30}}
	registry := durable.NewRegistry(
		durable.Orchestrator("Total", total),
		durable.Activity("Price", s.price),
	)
	runExample(registry, total, []string{"apple", "pear"})
	// Output:
	// 50
}
