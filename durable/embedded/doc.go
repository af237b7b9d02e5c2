// Package embedded stores a task hub in one local file: no server, no account,
// one process at a time.
//
// # Durability
//
// What was acknowledged (a start, an event, a checkpoint, an activity's result)
// survives the death of the process and of the machine. [Config.Relaxed] gives
// the latter up for speed: a loss of power then takes the last moments away,
// but leaves a hub that is whole.
//
// A checkpoint is one transaction. Its events, its messages, timers and
// activities, and the end of the messages that it took are there together or
// not at all, so that there are no duplicates to look out for. An activity runs
// a second time only if the process died, or gave up waiting, before its result
// was acknowledged.
//
// # Files
//
// The hub is a bbolt database. While it is open there are files beside it: two
// of a journal, which hold what is not in the database yet, and one that says
// which process has the hub. [Hub.Close] brings everything into the database
// and deletes them; after a crash [Open] does. Whoever copies a hub that is open
// must copy them all, the database last.
//
// The file says which version of its format it has. A newer one is refused, and
// so is a file that is damaged or something else: nothing in it is changed. A
// disk that is full makes operations fail; the hub goes on once it can write.
//
// [Hub.Export] and [Hub.Import] take everything that is in a hub out and put it
// into one, which package provider's CopyHub does between providers. [Delete]
// deletes a hub's files.
//
// # How it works
//
// All that waits for a commit is made durable as one group: one goroutine
// applies the operations, appends what they change to the journal with one sync,
// and tells those who wait. While the disk works the next group gathers, so that
// many who write at once share a sync.
//
// What was changed is kept in memory, on top of the database, until 8 MB of
// journal have come together. Then it goes into the database in the background,
// in one transaction, and the other file of the journal takes over. What is
// deleted by then, as are most messages and activities, never gets there.
//
// Memory also holds which instances have messages, which activities are ready
// and which timers are set, read once when the hub is opened. Locks are in
// memory only. Nothing is ever polled: an idle hub does nothing until its next
// timer is due.
//
// The result of an activity is handed to its orchestration before it is stored.
// Mostly the checkpoint that takes it is what makes it durable, and is what the
// activity's completion waits for, so that a step of an orchestration is one
// sync. Who reads an instance sees what is durable.
//
// # Why bbolt
//
// Measured on two cores with five history records, two inserts and a delete in
// a transaction, fsynced, from 64 writers: bbolt with one committing goroutine
// 14,400 transactions a second, Pebble 32,500, SQLite in Go 6,600 to 7,700,
// Badger 4,100. bbolt adds 0.3 MB and one module to a program, Pebble 15 MB and
// 28; bbolt keeps one file, Pebble and Badger a folder; it reads histories three
// to five times as fast as Pebble; and nothing acknowledged was ever lost to
// kill -9, while Pebble without syncs lost two thousand transactions. What it is
// slow at, two syncs for every transaction and whole pages written, the journal
// takes off its hands: with it, sequences of three activities run 3.5 times as
// fast as with transactions of bbolt alone.
package embedded
