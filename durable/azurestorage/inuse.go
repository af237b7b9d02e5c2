package azurestorage

import (
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
)

// inUse counts what is given back once a worker has nothing to do, or has stopped in
// time.
func (h *TaskHub) inUse() inuse.Counts {
	all := inuse.Counts{}
	if h.cutShort.Load() {
		return all
	}
	h.inbox.count(all)
	h.activities.count(all)
	h.held.count(all)
	h.endings.count(all)
	for _, p := range h.partitions {
		p.count(all)
	}
	for service, p := range map[string]*store.Pace{"queues": h.services.QueuePace, "tables": h.services.TablePace, "blobs": h.services.BlobPace} {
		p.Count(all, service)
	}
	for what, s := range map[string]interface {
		TryAcquire(int64) bool
		Release(int64)
	}{"bytes that are downloaded": store.Downloading, "bytes that are unpacked": store.Unpacking} {
		if s.TryAcquire(2 * wire.MaxDecompressed) {
			s.Release(2 * wire.MaxDecompressed)
		} else {
			all[what]++
		}
	}
	return all
}

func (b *inbox) count(all inuse.Counts) {
	b.buffer.mu.Lock()
	all["places of control-queue messages"] = b.hub.cfg.ControlQueueBufferThreshold - b.buffer.free
	b.buffer.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	all["instances with messages"], all["instances that are ready"] = len(b.slots), len(b.ready)
}

func (q *activityQueue) count(all inuse.Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all["places of activities in the hub"], all["activities that wait"] = q.hub.cfg.MaxConcurrentActivities-q.free, len(q.items)
}

func (h *heldMessages) count(all inuse.Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all["messages that are held"] = len(h.byID)
}

func (e *endings) count(all inuse.Counts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, waiting := range e.awaited {
		all["who await an end"] += len(waiting)
	}
}

func (p *partition) count(all inuse.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["sessions of partitions"] += p.sessions
}
