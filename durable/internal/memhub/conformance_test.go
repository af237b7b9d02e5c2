package memhub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

// slowHub is a hub whose clock advances between two messages.
type slowHub struct{ *memhub.Hub }

func (h slowHub) Send(ctx context.Context, m provider.TaskMessage) error {
	time.Sleep(time.Millisecond)
	return h.Hub.Send(ctx, m)
}

// Tests rely on this hub: it must behave like every other provider.
func TestHub_ConformsToTheProviderContract(t *testing.T) {
	providertest.ExerciseIn(t, func(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) },
		func(*testing.T) providertest.Hub {
			return providertest.Hub{Provider: slowHub{memhub.New()}, Patience: 10 * time.Minute, Quiet: time.Second, Order: providertest.OrderUnlessReturned}
		})
}
