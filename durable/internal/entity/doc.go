// Package entity is what a durable entity is between its messages and its
// stored state, as DurableTask.Core has it: events in, operations to run,
// events out. It knows no clock, no storage and no goroutine.
//
// An entity is an instance whose ID is "@name@key". It is stored as an
// instance that continues as new with every batch of messages; the input of its
// start is a [State]. What others send it are [Request]s and releases of locks
// in external events; what it answers is a [Response].
//
// Two dialects are read: that of DurableTask.Core's entities, which is written,
// too, and that of the Functions extension's older scheduler.
package entity
