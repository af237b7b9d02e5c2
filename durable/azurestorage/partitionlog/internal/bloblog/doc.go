// Package bloblog stores the log of a partition in append blobs. It implements [logstore.Log]. One
// process at a time owns the log and appends to it; any number of processes may read it.
//
// # Ownership
//
// The log is a chain of append blobs ([chain]). The owner holds a lease on the current blob. Every
// append names the lease and the offset at which the blob must end. A process that has lost the
// lease therefore cannot append, and a repeated or delayed append has no effect.
//
// If the result of an append is lost, the owner sends the same bytes again for the same offset. If
// the blob already has content there, the owner reads it and compares. It appends nothing else
// until the append is decided. If the outcome stays unknown, the ownership ends with a
// [logstore.UncertainError].
//
// # Roll-over
//
// To continue in the next blob, the owner of blob n does the following:
//
//   - It creates blob n+1 and leases it.
//   - It appends a header to n+1.
//   - It appends a seal with the nonce of n+1 to n. From then on n+1 is the current blob.
//
// It renews the leases on both blobs until it knows that the seal was appended.
//
// A former owner that was frozen may create n+1, but it cannot seal n. So the current blob is the
// newest one if its predecessor has a seal for it, and otherwise the predecessor. In the second
// case the newest blob is a leftover. The next roll-over deletes it. It does so only while the owner
// holds the lease on n, and with the listed ETag as a condition.
//
// A blob is deleted once the base contains all its groups. The predecessor of the current blob is
// kept. [Open] acquires the lease with the listed ETag as a condition. If the blob has changed,
// Open starts over.
//
// # Cost
//
// Requests of each operation:
//
//   - Append: one per 4 MiB.
//   - [Open]: list, lease, read, append. One more to look for a seal if the log has several blobs.
//     One more for each older blob whose groups the base lacks. If another process owns the log:
//     one.
//   - Roll-over: create and lease, in the background; then header and seal. One more releases the
//     lease on the old blob.
//   - Renewal: one per third of the lease duration.
//   - [OpenReader]: as Open, without lease and append.
//   - [Reader.Next]: one.
package bloblog
