package durable

// WithLogger is the door through which a Worker gives its logger to a registry.
var WithLogger = (*Registry).withLogger
