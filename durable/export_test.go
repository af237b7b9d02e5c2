package durable

import "github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"

// WithLogger is the door through which a Worker gives its logger to a registry.
var WithLogger = (*Registry).withLogger

// EngineOf returns a registry's functions, as the engine runs them.
func EngineOf(r *Registry) dispatch.AllFunctions { return (*engineFunctions)(r) }
