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

// blocked has the partitions that the worker of this process cannot serve.
type blocked struct {
	mu     sync.Mutex // protects the following
	all    map[problem]provider.BlockedPartition
	logged map[string]time.Time // by message and cause
}

// problem identifies a [provider.BlockedPartition].
type problem struct {
	partition int
	kind      provider.PartitionProblem
}

// set records a problem, or its end if err is nil.
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

// complainEvery is the interval at which the log repeats a message with the same cause.
const complainEvery = time.Minute

// isNews reports whether the log has had no line with the message and the cause for a while.
func (b *blocked) isNews(message string, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.logged, func(_ string, at time.Time) bool { return time.Since(at) >= complainEvery })
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

// causeOf returns a text that is the same for each error of one cause. Error texts differ in the
// IDs of requests and in ports.
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

// notOpened records the partitions that the worker should take and cannot open. All others can
// be opened, or are not this worker's share.
func (h *Hub) notOpened(failed map[int]error) {
	for n := range h.shares {
		h.blocked.set(n, provider.PartitionNotOpened, failed[n])
	}
	for _, n := range slices.Sorted(maps.Keys(failed)) {
		const message = "a partition cannot be opened; health/ready lists all"
		if err := failed[n]; h.blocked.isNews(message, err) {
			h.log.Error(message, "partition", n, "error", err)
		}
	}
}

// mailRead records whether the owner's last look into the mailbox failed.
func (s *share) mailRead(err error) {
	s.hub.blocked.set(s.number, provider.PartitionMailUnread, err)
	const message = "cannot read the mail of a partition; trying again; health/ready lists all"
	if err != nil && s.hub.blocked.isNews(message, err) {
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
		_, unread := h.blocked.all[problem{o.share.number, provider.PartitionMailUnread}]
		return !unread
	})
	return all, len(all) > 0 && !serves
}
