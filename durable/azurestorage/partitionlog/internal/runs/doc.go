// Package runs stores the records of a partition in immutable sorted files. It implements
// [logstore.Base]. The files can be blobs.
//
// # Runs
//
// Each layer that is written becomes a run: one or more files with records and deletions, sorted by
// key. A record in a newer run hides the records of the same key in older runs. Background merges
// combine the newest runs. Each record is rewritten O(log n) times, and there are O(log n) runs.
// The cost of a write depends on the amount of changed data, not on the size of the base.
//
// The manifest names the files of the base. It is not stored in a file: [Config].Commit stores it
// in the partition's log, and it takes effect then. A crash can leave files that no manifest names.
// Files that a new manifest no longer names are deleted after a delay, because readers in other
// processes may still use them.
//
// # File format
//
// A file consists of
//
//	block…   records sorted by key, at least one record, about 32 KiB:
//	           key length, key, value length + 1, value
//	           key length, key, 0                        a deletion
//	tail     format version, number of blocks,
//	         first key, length and CRC-32C of each block,
//	         Bloom filter of keys and of group numbers
//
// The first byte of a key is its table. Lengths are varints. The manifest contains the length and
// the CRC-32C of the tail. So one request makes a file readable, and a wrong file is detected.
// Checksums also cover [Config].Seed and the file's name.
package runs
