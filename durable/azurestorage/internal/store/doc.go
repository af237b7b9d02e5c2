// Package store sends requests to Azure Storage: to tables, queues and blob containers.
//
// The package classifies errors (for example [IsConflict], [IsTransient] and [WasNotApplied]), retries
// requests that may be repeated ([Retry]), and limits the requests in flight ([Pace]). It does not
// depend on the layout of a task hub.
package store
