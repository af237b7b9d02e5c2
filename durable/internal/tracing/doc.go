// Package tracing writes the spans of orchestrations. Their names, attributes and parents are
// the same as in Durable Functions' distributed tracing V2
// (DurableTask.Core/Tracing/TraceHelper.cs, Schema.cs). A trace can therefore include workers
// in Go and .NET.
//
// The span of an orchestration, or of something that it waits for, can start in one process and
// end in another, days later. Its ID is chosen at the start and stored in the history. The span
// is written once, at its end. [SpanIDs] makes the SDK use the chosen ID.
//
// A nil *[Tracer] does nothing and costs nothing.
package tracing
