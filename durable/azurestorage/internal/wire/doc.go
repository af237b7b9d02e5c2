// Package wire has the bytes of a task hub in Azure Storage, as DurableTask.AzureStorage
// lays them out: rows of tables, messages of queues, events as JSON, blobs of large
// values, and the names of tables, queues and containers.
//
// It is pure: it makes no request, starts no goroutine and reads no clock.
package wire
