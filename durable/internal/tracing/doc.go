// Package tracing writes the spans of orchestrations, with the names,
// attributes and parents of Durable Functions' distributed tracing V2
// (DurableTask.Core/Tracing/TraceHelper.cs, Schema.cs), so that a trace goes on
// through workers in Go and .NET alike.
//
// A span of an orchestration, or of something that it waits for, can begin in
// one process and end in another, days later. So its ID is chosen when it
// begins and kept in the history, and the span is written once, when it ends.
// [SpanIDs] makes the SDK take the chosen ID.
//
// A nil *[Tracer] does nothing, and costs nothing.
package tracing
