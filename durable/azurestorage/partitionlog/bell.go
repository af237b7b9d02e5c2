package partitionlog

import (
	"context"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
)

// bellBlob is an append blob. Each byte of it says what has changed: partitions have other owners,
// or a partition has mail although its owner may be at rest. It stands among the heartbeats, so
// that the list of the workers shows its size.
const bellBlob = workersPrefix + "~bell"

// ownersChanged is the byte of partitions that have other owners. Other bytes are the number of
// the partition that has mail.
const ownersChanged byte = 0xff

// maxRings is the number of bytes after which the bell blob starts again. The service allows
// 50,000 appends to a blob.
const maxRings = 40_000

// ring appends a byte to the bell blob.
func (h *Hub) ring(ctx context.Context, what byte) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	blocks, err := h.leases.AppendTo(ctx, bellBlob, []byte{what})
	if err == nil && blocks >= maxRings {
		return h.leases.Restart(ctx, bellBlob, h.stamp(map[string]string{})) // its size tells listeners that they missed rings
	}
	if !store.IsBlobGone(err) {
		return err
	}
	if err := h.confirm(ctx); err != nil {
		return err
	}
	err = store.Retry(ctx, "create "+bellBlob, func(ctx context.Context) error {
		_, err := h.leases.AppendBlob(bellBlob).Create(ctx, h.stamp(map[string]string{}))
		return err
	})
	if err := store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed); err != nil { // another process has created it
		return err
	}
	_, err = h.leases.AppendTo(ctx, bellBlob, []byte{what})
	return err
}

// listener is a worker's place in the bell blob.
type listener struct {
	hub   *Hub
	heard int64     // the bytes that the worker has read
	at    time.Time // the last look
}

// listen reads what was appended since the last look, has the owners of partitions with mail look
// into their mailboxes, and reports whether partitions have other owners. The error is a
// *[DeletedError].
func (l *listener) listen(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	l.at = time.Now()
	again := min(l.heard, 1) // the service refuses a read at the end of a blob
	part, err := l.hub.leases.ReadPart(ctx, bellBlob, l.heard-again, maxRings)
	switch {
	case store.IsContainerMissing(err), err == nil && part.Metadata[chain.HubKey] != l.hub.id:
		_ = l.hub.confirm(ctx) // another error than a DeletedError is no reason to stop
	case store.StatusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		l.heard = 0
		l.hub.wakeAll()
		return true, l.hub.deleted()
	case store.IsBlobGone(err):
		l.heard = 0
	}
	if err != nil || int64(len(part.Content)) < again {
		return false, l.hub.deleted() // the next heartbeat is soon enough
	}
	fresh := part.Content[again:]
	l.heard += int64(len(fresh))
	return l.hub.rung(fresh), l.hub.deleted()
}

// listenTo is listen for a worker that has just listed the heartbeats, which the bell blob of a size was
// among. The list shows the owners already.
func (l *listener) listenTo(ctx context.Context, size int64, first bool) {
	l.at = time.Now()
	switch {
	case first:
		l.heard = size
	case size < l.heard:
		l.heard = size
		l.hub.wakeAll()
	case size > l.heard:
		part, err := l.hub.leases.ReadPart(ctx, bellBlob, l.heard, size-l.heard)
		if err != nil {
			return // the next look reads it
		}
		l.heard += int64(len(part.Content))
		l.hub.rung(part.Content)
	}
}

// rung wakes the owners of partitions that have mail, and reports whether partitions have other
// owners.
func (h *Hub) rung(bytes []byte) (changed bool) {
	for _, b := range bytes {
		if int(b) >= len(h.shares) {
			changed = changed || b == ownersChanged
		} else if o := h.shares[b].owner(); o != nil {
			o.wake()
		}
	}
	return changed
}

// wakeAll has all owners of this process look into their mailboxes.
func (h *Hub) wakeAll() {
	for _, o := range h.owners() {
		o.wake()
	}
}

// ringAfter is the time without mail from this process after which it rings with the next mail. An
// owner looks into the mailbox often for longer than that after mail, see restAfter.
const ringAfter = 10 * time.Second

// announce has the partition's owner look into the mailbox, in which there is new mail of this
// process. Without an announcement, an owner at rest finds the mail within restLook.
func (s *share) announce(ctx context.Context) {
	if o := s.owner(); o != nil {
		o.wake()
		return
	}
	now := time.Now()
	if last := s.announced.Load(); last == nil || now.Sub(*last) > ringAfter {
		if s.hub.ring(ctx, byte(s.number)) != nil {
			return // the next mail rings again
		}
	}
	s.announced.Store(&now)
}
