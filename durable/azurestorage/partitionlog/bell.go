package partitionlog

import (
	"context"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
)

// bellBlob is an append blob. Each byte announces an event: partitions have new owners, or a
// partition has mail although its owner may be idle. The blob is stored with the heartbeats, so the
// list of workers includes its size.
const bellBlob = workersPrefix + "~bell"

// ownersChanged announces that partitions have new owners. Any other byte is the number of a
// partition that has mail.
const ownersChanged byte = 0xff

// maxRings is the number of bytes after which the bell blob is created again. The service allows
// 50,000 appends to a blob.
const maxRings = 40_000

// ring appends a byte to the bell blob.
func (h *Hub) ring(ctx context.Context, what byte) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	blocks, err := h.leases.AppendTo(ctx, bellBlob, []byte{what})
	if err == nil && blocks >= maxRings {
		return h.leases.ReplaceAppendBlob(ctx, bellBlob, h.stamp(map[string]string{})) // listeners see from its size that they missed rings
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

// listener is a worker's position in the bell blob.
type listener struct {
	hub   *Hub
	heard int64     // number of bytes read
	at    time.Time // time of the last read
}

// listen reads the new bytes of the bell blob. It wakes this process's owners of partitions with
// mail and reports whether partitions have new owners. The error is a *[DeletedError].
func (l *listener) listen(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	l.at = time.Now()
	again := min(l.heard, 1) // the service refuses a read at the end of a blob
	part, err := l.hub.leases.ReadPart(ctx, bellBlob, l.heard-again, maxRings)
	switch {
	case store.IsContainerMissing(err), err == nil && part.Metadata[chain.HubKey] != l.hub.id:
		_ = l.hub.confirm(ctx) // only a DeletedError stops the worker
	case store.StatusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		l.heard = 0
		l.hub.wakeAll()
		return true, l.hub.deleted()
	case store.IsBlobGone(err):
		l.heard = 0
	}
	if err != nil || int64(len(part.Content)) < again {
		return false, l.hub.deleted() // the next heartbeat reads it
	}
	fresh := part.Content[again:]
	l.heard += int64(len(fresh))
	return l.hub.handleRings(fresh), l.hub.deleted()
}

// listenTo does the same as listen for a worker that has just listed the heartbeats. size is the
// listed size of the bell blob. The list already shows the new owners.
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
			return // the next call reads it
		}
		l.heard += int64(len(part.Content))
		l.hub.handleRings(part.Content)
	}
}

// handleRings wakes this process's owners of partitions with mail and reports whether partitions
// have new owners.
func (h *Hub) handleRings(bytes []byte) (changed bool) {
	for _, b := range bytes {
		if int(b) >= len(h.partitions) {
			changed = changed || b == ownersChanged
		} else if o := h.partitions[b].owner(); o != nil {
			o.wake()
		}
	}
	return changed
}

// wakeAll makes all owners in this process poll their mailboxes.
func (h *Hub) wakeAll() {
	for _, o := range h.owners() {
		o.wake()
	}
}

// ringAfter is the time without mail from this process after which its next mail rings the bell. It
// is shorter than idleAfter, so the owner still polls often within this time.
const ringAfter = 10 * time.Second

// announce tells the partition's owner that this process has sent mail. Without an announcement, an
// idle owner finds the mail within idlePollInterval.
func (s *partitionHandle) announce(ctx context.Context) {
	if o := s.owner(); o != nil {
		o.wake()
		return
	}
	now := time.Now()
	if last := s.announced.Load(); last == nil || now.Sub(*last) > ringAfter {
		if s.hub.ring(ctx, byte(s.number)) != nil {
			return // the next mail rings
		}
	}
	s.announced.Store(&now)
}
