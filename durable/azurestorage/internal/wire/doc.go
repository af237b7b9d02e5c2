// Package wire encodes and decodes the data of a task hub in the formats of DurableTask.AzureStorage:
// table rows, queue messages, events as JSON, and blobs with large values. It also names tables,
// queues and containers.
//
// The package is pure: it sends no requests, starts no goroutines and reads no clock. The encoders
// write the same bytes as .NET, with the exceptions that their comments list; tests compare them with
// recordings.
package wire
