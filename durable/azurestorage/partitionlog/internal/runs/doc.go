// Package runs keeps the records of a partition in immutable sorted files: it is a
// [logstore.Base] whose files can be blobs.
//
// Each layer that is written becomes a run: one or more files with records in the
// order of their keys, deletions among them. A newer run hides what older ones have
// under the same key. Runs are merged in the background, the newest ones with each
// other, so that each record is written again O(log n) times and there are O(log n)
// runs. What a write costs follows what changed and not what is there.
//
// The manifest names the files that count. It is not in a file: [Config].Commit stores
// it, in the partition's log, and only then it counts. A crash leaves files that no
// manifest names. Files that a new manifest does not name any more are deleted after a
// while, since readers in other processes may still use them.
//
// A file is
//
//	block…   records in the order of their keys, at least one, about 32 KiB:
//	           key's length, key, length of the value + 1, value
//	           key's length, key, 0                        a deletion
//	tail     format version, number of blocks,
//	         each block's first key, length, CRC-32C,
//	         Bloom filter over keys, and over the numbers of groups
//
// Keys begin with the byte of their table. Lengths are varints. The manifest has the
// length and the CRC-32C of the tail, so one request makes a file readable, and a file
// that is not the one that was written is noticed. Checksums begin with [Config].Seed
// and the file's name.
package runs
