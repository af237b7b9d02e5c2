package dispatch

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// EntityCode runs one operation of an entity. It may panic.
type EntityCode func(ctx context.Context, op *entity.Operation) entity.Result

// EntityFunctions is implemented by [Functions] that include entities.
type EntityFunctions interface {
	// Entity returns the entity with the given name in lower case.
	Entity(name string) (EntityCode, bool)
}

// AllFunctions finds orchestrators, activities and entities.
type AllFunctions interface {
	Functions
	EntityFunctions
}

// FunctionsOf returns the functions of a *durable.Registry. Package durable sets it; its API
// does not export the functions.
var FunctionsOf func(registry any) AllFunctions

// EntityConfig configures the execution of entities. The zero value has the defaults.
type EntityConfig struct {
	MaxConcurrent int           // 0: the limit of orchestrations
	MaxBatch      int           // operations between two checkpoints; 0 or less: DefaultMaxEntityBatch
	ReorderWindow time.Duration // how long messages wait for earlier ones; 0: entity.DefaultReorderWindow; negative: disabled
	// KeepFailedEffects keeps the effects of failed operations.
	KeepFailedEffects bool
}

// DefaultMaxEntityBatch is the default number of operations of an entity between two
// checkpoints (the extension's Options/DurableTaskOptions.cs, MaxEntityOperationBatchSize).
const DefaultMaxEntityBatch = 5000

// settingsOn returns the settings of entities on a hub.
func (c EntityConfig) settingsOn(hub provider.Worker) entity.Settings {
	s := c.settings()
	exact, ok := hub.(provider.ExactlyOnce)
	s.ExactlyOnce = ok && exact.IsExactlyOnce()
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
