// Package chain has what the logs and the mailboxes of partitions share: append blobs that
// follow each other, and the frames in them.
//
// Blobs of a chain are numbered from 1 on. The one that is in use is the newest, or the one
// before it, while the newest is being prepared. Blobs are deleted only before that: the one in
// use and the one before it are always there. So the two newest of a list belong to the chain.
//
// What is before them may be garbage: a request to create a blob may arrive, or be made by
// somebody who was frozen, or arrive once more, when that has long been deleted. Nobody may
// take garbage for what was there: each blob has a nonce in its metadata, from its creation
// on, and what is done to a blob on the strength of a list has its ETag as a condition.
//
// # Hubs that are deleted and created again
//
// A process may keep running while its hub is deleted and another one is created in the same
// container. Each blob names its hub in its metadata, and hub.json names the current one. The
// process reads hub.json again before it leases an empty log, before it appends to a new mailbox
// blob, and when a list shows a blob of another hub or a blob without a hub. If hub.json names
// another hub, the process stops. Appends to a log need no check: they name the lease, and the
// lease ends with the blob.
//
// A process of a deleted hub may create blobs in the new hub and lease them, but the new hub's
// log never continues there. A process of the new hub that lists such a blob breaks its lease and
// deletes it.
package chain
