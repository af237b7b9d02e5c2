package dispatch

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// EntityCode runs one operation of an entity. It may panic.
type EntityCode func(ctx context.Context, op *entity.Operation) entity.Result

// EntityFunctions are [Functions] among which are entities.
type EntityFunctions interface {
	// Entity returns the entity with the given name, which is in lower case.
	Entity(name string) (EntityCode, bool)
}

// AllFunctions are orchestrators, activities and entities.
type AllFunctions interface {
	Functions
	EntityFunctions
}

// FunctionsOf returns the functions of a *durable.Registry. Package durable, which
// sets it, does not export them.
var FunctionsOf func(registry any) AllFunctions

// EntityConfig says how a [Dispatcher] runs entities. Its zero value has the
// defaults.
type EntityConfig struct {
	MaxConcurrent int           // 0: as many as orchestrations
	MaxBatch      int           // operations between two checkpoints; 0: DefaultMaxEntityBatch
	ReorderWindow time.Duration // how long messages wait for those sent before; 0: entity.DefaultReorderWindow; negative: not at all
	// KeepFailedEffects keeps what an operation did before it failed.
	KeepFailedEffects bool
}

// DefaultMaxEntityBatch is how many operations of an entity run between two
// checkpoints (the extension's Options/DurableTaskOptions.cs,
// MaxEntityOperationBatchSize).
const DefaultMaxEntityBatch = 5000

// settingsOn returns how entities of a hub are run.
func (c EntityConfig) settingsOn(hub provider.Worker) entity.Settings {
	s := c.settings()
	exact, ok := hub.(provider.Exact)
	s.Exact = ok && exact.IsExact()
	return s
}

func (c EntityConfig) settings() entity.Settings {
	s := entity.Settings{MaxBatch: c.MaxBatch, Window: c.ReorderWindow, KeepFailedEffects: c.KeepFailedEffects}
	if s.MaxBatch <= 0 {
		s.MaxBatch = DefaultMaxEntityBatch
	}
	if s.Window == 0 {
		s.Window = entity.DefaultReorderWindow
	}
	return s
}
