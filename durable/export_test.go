package durable

import "github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"

// WithLogger exposes the method that a Worker uses to set the logger of a registry.
var WithLogger = (*Registry).withLogger

// EngineOf returns a registry's functions in the form that the engine runs.
func EngineOf(r *Registry) dispatch.AllFunctions { return (*engineFunctions)(r) }

// EngineConfig returns the engine's configuration for c.
func EngineConfig(c Config) dispatch.Config { return c.WithDefaults().engine() }
