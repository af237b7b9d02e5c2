// Package bloblog is the log of a partition in append blobs: a [logstore.Log] that one
// process appends to and any may read.
//
// The log goes on in blob after blob ([chain]). An owner has a lease on the newest, and
// every append carries the lease and the position at which the blob must end. So who has
// lost the lease cannot append, and an append that is sent again, or arrives late, cannot
// happen twice. An append whose answer is lost is sent again, the same bytes at the same
// position; if something is there already, it is read and compared. While that is open
// nothing else is appended. What cannot be decided ends the ownership with a
// [logstore.UncertainError].
//
// # How one blob follows another
//
// The owner of blob n creates n+1 if there is none, leases it, appends a header, and then
// appends a seal to n, which names the nonce of n+1. With the seal n+1 becomes the log. A
// former owner of n that was frozen can create n+1, but cannot seal n. So the log is the
// newest blob, or the one before it if that does not have a seal for the newest. The newest is
// then a leftover, which the next roll-over removes: only while it has
// the lease on n, and only the very blob that it saw, so that one who is frozen in between
// does no harm either.
//
// A blob is deleted when the base has all its groups, but for the one before the current one.
// Whoever takes the lease takes it on the blob as it was listed, by its ETag: if others went on
// meanwhile, it starts over.
//
// # What it costs
//
// Appending a group is one request for each 4 MiB. [Open] of a log of one blob is four: list,
// lease, read, append; one more if it has had several, and one for each of those that have
// groups which the base lacks. A roll-over is four: create and lease, in the background
// before it is needed, header and seal; one more releases the lease on the blob before. A
// renewal is one every third of the lease. [Reader.Next] is one; [OpenReader] is as Open without lease and append. [Open] of a
// log that somebody has is one.
package bloblog
