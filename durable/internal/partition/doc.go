// Package partition is a task hub, or a part of one, as one process has it: pending
// work in memory, on top of records in a [logstore.Store]. It knows nothing of where
// the records are.
//
//	Partition  what callers see: client, worker, copies
//	Reader     the part that only reads
//	work       pending messages, activities, alarms and locks, in memory
//	txn        changes of records, and their effects on work
//
// One goroutine commits all pending operations as one group: it applies them, has
// their changes made durable, and then runs their effects on work. Operations that
// come during a write share the next one.
//
// Nothing is polled: an idle partition does nothing until its next timer is due.
//
// An orchestration gets the result of an activity before the result is stored. Most
// often the checkpoint that takes the result makes it durable, and the activity's
// completion waits for that checkpoint, so that a step of an orchestration costs one
// write. Readers see only what is durable.
package partition
