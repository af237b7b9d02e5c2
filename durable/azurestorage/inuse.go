package azurestorage

import "github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"

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
	for service, p := range map[string]*pace{"queues": h.services.queuePace, "tables": h.services.tablePace, "blobs": h.services.blobPace} {
		p.count(all, service)
	}
	for what, s := range map[string]interface {
		TryAcquire(int64) bool
		Release(int64)
	}{"bytes that are downloaded": downloading, "bytes that are unpacked": unpacking} {
		if s.TryAcquire(2 * maxDecompressed) {
			s.Release(2 * maxDecompressed)
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

func (p *pace) count(all inuse.Counts, service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["requests to "+service] = p.running
	all["requests in flight to "+service] = len(p.inFlight)
	all["requests that wait for "+service] = len(p.turns)
}
