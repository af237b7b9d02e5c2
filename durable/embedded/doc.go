// Package embedded stores a task hub in one local file. It needs no server and no account. One
// process at a time can use the hub.
//
// # Durability
//
// An acknowledged write (a start, an event, a checkpoint, an activity's result) survives a crash of
// the process and of the machine. [Config.Relaxed] is faster but weaker: a power loss can then lose
// the most recent writes. The hub stays consistent in either mode.
//
// A checkpoint is one transaction. It contains the new events, messages, timers and activities, and
// the deletion of the consumed messages. Messages are never duplicated. An activity runs a second
// time only if the process crashed, or stopped waiting, before the activity's result was
// acknowledged.
//
// # Files
//
// The hub is a bbolt database. While it is open, three more files exist beside it. Two journal
// files contain the changes that are not in the database yet. The third file identifies the process
// that uses the hub. [Hub.Close] writes all changes to the database and deletes these files. After
// a crash, [Open] does so. Do not copy the files of an open hub: they change meanwhile, and the
// copy is unreadable. [Hub.Backup] copies an open hub.
//
// The file has a format version. [Open] rejects a file that is newer, damaged or not a hub, and
// does not change it. While the disk is full, operations fail. The hub continues when it can write
// again.
//
// provider.CopyHub copies a hub to and from other providers. [Delete] deletes a hub's files.
//
// The file records whether data was imported. Without imported data, no message is delivered again
// after a checkpoint has consumed it. Entities then need not remember received messages, and their
// cost does not grow with the number of callers (see [Hub.IsExactlyOnce]).
//
// # Layers
//
//	Hub        the public type
//	partition  pending work in memory, transactions (durable/internal/partition)
//	logstore   group commit, layers in memory (durable/internal/logstore)
//	hubfile    journal and database (internal/hubfile)
//
// Operations that arrive at the same time form a group. Each group takes one sync of the journal.
//
// Changes stay in memory, on top of the database, until the journal has 8 MB. A background
// transaction then writes them to the database, and the other journal file takes over. Most
// messages and activities are deleted before that and never reach the database.
//
// # Why bbolt
//
// The candidates were measured on two cores with 64 writers. A transaction had five history
// records, two inserts and a delete, and was synced.
//
//	bbolt with one committing goroutine  14,400 transactions per second
//	Pebble                               32,500
//	SQLite in Go                          6,600 to 7,700
//	Badger                                4,100
//
// bbolt adds 0.3 MB and one module to a program; Pebble adds 15 MB and 28 modules. bbolt uses one
// file; Pebble and Badger use a folder. bbolt reads histories three to five times as fast as
// Pebble. It lost no acknowledged transaction to kill -9; Pebble without syncs lost two thousand.
// bbolt needs two syncs per transaction and writes whole pages. The journal avoids both: with it,
// sequences of three activities run 3.5 times as fast as with bbolt's transactions alone.
package embedded
