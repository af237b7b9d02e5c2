// Package taskhub adapts a task hub for a server. The storage may be unreachable, another process may
// hold the local file, and requests must not wait long for either.
//
// A [Hub] waits for the storage and runs the worker. A [Client] limits the time of requests and marks
// outages in their errors. A [Readiness] tracks whether the app can serve.
package taskhub
