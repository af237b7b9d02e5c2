// Package partition implements a task hub, or one partition of a task hub, in the memory of the
// process that owns it. Its records live in a [logstore.Store], which decides where they are
// stored.
//
//	Partition  the hub's client, worker, export and import
//	Reader     reads records; the only part that a process without the partition uses
//	work       pending messages, activities, alarms and locks, in memory
//	txn        changes of records, and their effects on work
//
// A client's request, a checkpoint or a result is an operation. One goroutine commits all
// pending operations as one group. It applies them to the records, makes the changes durable,
// and then runs their effects on work. Operations that arrive during a write join the next
// group.
//
// The package does not poll: an idle partition sleeps until its next timer is due.
//
// An orchestration receives the result of an activity before the result is durable. Usually its
// checkpoint then makes the result durable, and the activity's completion waits for that
// checkpoint. A step of an orchestration therefore costs one write. Readers see only durable
// records.
package partition
