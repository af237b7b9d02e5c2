// Package store makes requests to Azure Storage: to tables, queues and blob containers.
// It says which failed requests may be made again, bounds how many are in flight, and
// knows nothing of task hubs.
package store
