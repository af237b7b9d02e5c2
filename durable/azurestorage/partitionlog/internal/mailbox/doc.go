// Package mailbox is mail for a partition in append blobs: any number of senders append to
// them, without a lease of their own, and the partition's owner reads them in order.
//
// The owner needs no more than a [Position], which it keeps together with the effect of what
// it took. A [Sender] that is in doubt sends again, so mail can come twice; it never comes in
// another order than that in which one sender sent it.
//
// Mail goes to blob after blob ([chain]). What makes that safe against senders that were
// frozen: a blob that is open has an infinite lease whose ID is the blob's nonce, and senders
// append under it. So an append reaches the very blob that the sender saw, and only while it
// is open. Whoever finds that a blob is large makes the next one, opens it, and then closes
// the old one: it changes the ID of its lease, after which no mail can be appended, and adds an
// end frame, at which the receiver goes on to the next blob. A sender that finds a blob closed
// adds the end frame, too, before it sends to the next: so no mail is in a blob that the
// receiver does not find. Only the receiver deletes, what is before its position, but for the
// last blob there.
//
// A blob can lose its lease: an operator breaks it, or a tool restores the container without
// leases. A sender then opens the newest blob again. It closes a blob that has a successor,
// because that may have an end frame, and continues with the successor.
//
// Mail that is longer than a block is in a blob of its own, a letter, which the mail names. The mail has
// the sender and the numbers of the letter's requests, too. So the owner knows whether a letter without a
// blob was taken before or is lost.
//
// [Sender.Send] is one request, or two for a letter, and one list before the first; making a mailbox
// takes four more. [Receiver.Next] is one for each 4 MiB, and one more for each letter. A
// download that breaks off continues with another request.
package mailbox
