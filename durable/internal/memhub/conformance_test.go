package memhub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

// slowHub has a clock that goes on between two messages.
type slowHub struct{ *memhub.Hub }

func (h slowHub) Send(ctx context.Context, m provider.TaskMessage) error {
	time.Sleep(time.Millisecond)
	return h.Hub.Send(ctx, m)
}

// What runs on this hub in tests must be able to count on what it can count on anywhere.
func TestHub_KeepsThePromisesOfAProvider(t *testing.T) {
	providertest.ExerciseIn(t, func(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) },
		func(*testing.T) providertest.Hub {
			return providertest.Hub{Provider: slowHub{memhub.New()}, Patience: 10 * time.Minute, Quiet: time.Second, Order: providertest.OrderUnlessReturned}
		})
}
