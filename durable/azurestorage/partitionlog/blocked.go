package partitionlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// blocked records the partitions that this worker cannot serve.
type blocked struct {
	mu     sync.Mutex // protects the fields below
	all    map[problem]provider.BlockedPartition
	logged map[string]time.Time // time of the last log line, by message and cause
}

// problem identifies a [provider.BlockedPartition].
type problem struct {
	partition int
	kind      provider.PartitionProblem
}

// set records a problem of a partition, or its end if err is nil.
func (b *blocked) set(partition int, kind provider.PartitionProblem, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := problem{partition, kind}
	if err == nil {
		delete(b.all, p)
		return
	}
	if b.all == nil {
		b.all = make(map[problem]provider.BlockedPartition)
	}
	since := b.all[p].Since
	if since.IsZero() {
		since = time.Now()
	}
	b.all[p] = provider.BlockedPartition{Partition: partition, Problem: kind, Cause: err.Error(), Since: since}
}

// warnInterval is the interval at which the same message with the same cause is logged.
const warnInterval = time.Minute

// shouldLog reports whether the message with this cause has not been logged within warnInterval.
func (b *blocked) shouldLog(message string, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.logged, func(_ string, at time.Time) bool { return time.Since(at) >= warnInterval })
	key := message + "\x00" + causeOf(err)
	if _, known := b.logged[key]; known {
		return false
	}
	if b.logged == nil {
		b.logged = make(map[string]time.Time)
	}
	b.logged[key] = time.Now()
	return true
}

// causeOf returns the same text for all errors with the same cause. Error texts can differ in
// request IDs and ports.
func causeOf(err error) string {
	if damage, ok := errors.AsType[*chain.DamageError](err); ok {
		return fmt.Sprint("damage ", damage.Blob, damage.Offset)
	}
	if status := store.StatusOf(err); status != 0 {
		return fmt.Sprint(status, store.CodeOf(err))
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(net.Error)) {
		return "no answer"
	}
	return err.Error()
}

// recordNotOpened records the partitions that the worker should own and cannot open. It clears the
// problem of all other partitions.
func (h *Hub) recordNotOpened(failed map[int]error) {
	for n := range h.partitions {
		h.blocked.set(n, provider.PartitionNotOpened, failed[n])
	}
	for _, n := range slices.Sorted(maps.Keys(failed)) {
		const message = "cannot open a partition; health/ready lists all such partitions"
		if err := failed[n]; h.blocked.shouldLog(message, err) {
			h.log.Error(message, "partition", n, "error", err)
		}
	}
}

// recordMailRead records the result of the owner's last poll of the mailbox.
func (s *partitionHandle) recordMailRead(err error) {
	s.hub.blocked.set(s.number, provider.PartitionMailUnread, err)
	const message = "cannot read the mail of a partition; trying again; health/ready lists all such partitions"
	if err != nil && s.hub.blocked.shouldLog(message, err) {
		s.hub.log.Warn(message, "partition", s.number, "error", err)
	}
}

// BlockedPartitions implements [provider.PartitionReporter].
func (h *Hub) BlockedPartitions() (all []provider.BlockedPartition, every bool) {
	h.blocked.mu.Lock()
	defer h.blocked.mu.Unlock()
	all = slices.SortedFunc(maps.Values(h.blocked.all), func(a, b provider.BlockedPartition) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Problem, b.Problem))
	})
	serves := slices.ContainsFunc(h.owners(), func(o *owner) bool {
		_, unread := h.blocked.all[problem{o.handle.number, provider.PartitionMailUnread}]
		return !unread
	})
	return all, len(all) > 0 && !serves
}
