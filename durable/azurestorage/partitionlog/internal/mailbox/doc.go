// Package mailbox stores the mail for a partition in append blobs. Any number of senders append
// mail without owning the mailbox. One receiver, the partition's owner, reads it in order.
//
// The owner stores a [Position] together with the effects of the mail before it. Mail can arrive
// twice, because a [Sender] repeats a send whose result is unknown. The mail of one sender always
// arrives in the order in which it was sent.
//
// # Open and closed blobs
//
// A mailbox is a chain of append blobs ([chain]). An open blob has an infinite lease whose ID is
// the blob's nonce. Senders append under this lease. So an append reaches only the blob that the
// sender has listed, and only while that blob is open.
//
// A sender that finds an open blob full does the following:
//
//   - It creates the next blob and opens it.
//   - It closes the full blob by changing the ID of its lease. No mail can be appended from then
//     on.
//   - It appends an end frame to the closed blob. The receiver continues with the next blob there.
//
// A sender that finds a blob closed also appends the end frame before it sends to the next blob,
// unless the blob already ends with one. So the receiver always finds the next blob. Only the
// receiver deletes blobs: those before its position, except the last one.
//
// # Lost leases
//
// A blob can lose its lease if an operator breaks it, or if a tool restores the container without
// leases. A sender then opens the newest blob again. If the blob has a successor, the sender closes
// it, because it may have an end frame, and continues with the successor.
//
// # Lost end frames
//
// After a failover of the account, or in a copy of the container, a blob can lack its end frame. Senders
// end only the second newest blob. So a receiver that reaches the end of a blob for the first time
// lists the blobs. If the blob has a successor, the receiver closes it and appends the end frame.
//
// # Letters
//
// Mail that exceeds one block is stored in a blob of its own, a letter. The mail in the mailbox
// blob then contains the letter's name, the sender, and the numbers of the letter's requests. With
// these the owner knows whether a missing letter was received before or is lost.
//
// # Cost
//
// [Sender.Send] makes one request, or two for a letter. The first send also lists the blobs, and
// reads the end of the second newest one. Creating a mailbox takes four more. [Receiver.Next] makes
// one request per 4 MiB and one per letter, and one list per blob when it first reaches the blob's
// end. An interrupted download continues with another request.
package mailbox
