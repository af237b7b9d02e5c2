// Package embedded stores a task hub in one local file: no server, no account,
// one process at a time.
//
// # Durability
//
// An acknowledged write (a start, an event, a checkpoint, an activity's result)
// survives a crash of the process and of the machine. [Config.Relaxed] trades the
// latter for speed: a loss of power can then lose the last moments, but the hub
// stays consistent.
//
// A checkpoint is one transaction: its events, its messages, timers and activities,
// and the deletion of the messages that it took. There are no duplicates. An
// activity runs a second time only if the process crashed, or stopped waiting,
// before the activity's result was acknowledged.
//
// # Files
//
// The hub is a bbolt database. While it is open there are files beside it: two of a
// journal, with the changes that are not in the database yet, and one with the
// process that has the hub open. [Hub.Close] writes all changes to the database and
// deletes these files; after a crash [Open] does. Do not copy the files of a hub that is
// open: they change meanwhile, and the copy is unreadable. [Hub.Backup] copies an open hub.
//
// The file has a format version. [Open] refuses files that are newer, damaged or
// something else, and does not change them. While the disk is full, operations fail;
// the hub goes on when it can write again.
//
// [Hub.Export] and [Hub.Import] copy a hub to and from other providers, by
// provider.CopyHub. [Delete] deletes a hub's files.
//
// The file notes whether something was imported: entities of a hub that was always in this
// file need not know messages that come again, and cost the same however many have called
// them ([Hub.IsExact]).
//
// # Layers
//
//	Hub        the file as a hub that callers see
//	partition  pending work in memory, and transactions (durable/internal/partition)
//	logstore   group commit, layers in memory (durable/internal/logstore)
//	hubfile    journal and database (internal/hubfile)
//
// A group of operations takes one sync of the journal.
//
// Changes stay in memory, on top of the database, until the journal has 8 MB. Then
// they are written to the database in the background, in one transaction, and the
// other journal file takes over. Most messages and activities are deleted by then,
// and never get to the database.
//
// # Why bbolt
//
// Measured on two cores with five history records, two inserts and a delete in
// a transaction, fsynced, from 64 writers: bbolt with one committing goroutine
// 14,400 transactions a second, Pebble 32,500, SQLite in Go 6,600 to 7,700,
// Badger 4,100. bbolt adds 0.3 MB and one module to a program, Pebble 15 MB and
// 28; bbolt keeps one file, Pebble and Badger a folder; it reads histories three
// to five times as fast as Pebble; and it lost no acknowledged transaction to
// kill -9, while Pebble without syncs lost two thousand. bbolt needs two syncs for
// each transaction and writes whole pages. The journal avoids both: with it,
// sequences of three activities run 3.5 times as fast as with bbolt's transactions
// alone.
package embedded
