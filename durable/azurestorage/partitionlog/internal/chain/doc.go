// Package chain implements numbered append blobs that continue one another, and the frames stored
// in them. The logs and the mailboxes of partitions use it.
//
// # Blobs
//
// The blobs of a chain are numbered from 1. The current blob is the newest one, or the second
// newest while the newest is being prepared. The current blob and its predecessor are never
// deleted. So the two newest blobs of a list always belong to the chain.
//
// Older blobs in a list may be leftovers. A create request may be delayed or repeated, or a frozen
// process may send it after the blob was deleted. To tell a leftover from the original, each blob
// carries a nonce in its metadata. Every request that relies on a list is conditional on the listed
// ETag.
//
// # Hubs that are deleted and created again
//
// A process may keep running while its hub is deleted and another hub is created in the same
// container. Each blob names its hub in its metadata, and hub.json names the current hub. The
// process reads hub.json again in these cases:
//
//   - before it leases an empty log
//   - before it appends to a new mailbox blob
//   - when a list shows a blob of another hub or a blob that names no hub
//
// If hub.json names another hub, the process stops. Appends to a log need no check: they name the
// lease, and the lease ends with the blob.
//
// A process of a deleted hub may create and lease blobs in the new hub, but the new hub's log never
// continues there. A process of the new hub that lists such a blob breaks its lease and deletes it.
package chain
