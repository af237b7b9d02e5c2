// Package reclaim collects garbage early while large payloads are processed, and returns the
// memory to the system afterwards. By itself, Go collects when the garbage is as large as the
// live heap, and keeps the memory for a while.
package reclaim

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// Large is the size in bytes from which a payload counts.
	Large = 1 << 20

	// worthwhile is the least amount of garbage, in bytes, for which a collection is started.
	worthwhile = 64 << 20
	// liveShare limits the cost of collections: the garbage is at least this share of the live heap.
	liveShare = 4
	// freeAfter is the time from the last work to the return of the memory.
	freeAfter = 5 * time.Second
)

// A Pacer collects garbage between steps of work on large payloads. The zero value is ready
// to use.
type Pacer struct {
	collecting sync.Mutex // held during a collection

	mu    sync.Mutex // protects the following
	armed bool       // memory is returned to the system soon
	again bool       // and once more, since more work was done
}

// Step is called before and after work on a payload of n bytes. If enough garbage exists, it
// collects that first, which takes a while. Small payloads are left to Go.
func (p *Pacer) Step(n int) {
	if n < Large {
		return
	}
	p.mu.Lock()
	p.again = p.armed
	if !p.armed {
		p.armed = true
		time.AfterFunc(freeAfter, p.free)
	}
	p.mu.Unlock()

	p.collecting.Lock()
	defer p.collecting.Unlock()
	if isDue(heap()) {
		runtime.GC()
	}
}

// isDue reports whether a collection is worth its cost, which grows with the live heap.
func isDue(objects, live uint64) bool { return objects >= live+max(worthwhile, live/liveShare) }

// heap returns the bytes of all objects, and of those that the last collection found live.
func heap() (objects, live uint64) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// free returns unused memory to the system.
func (p *Pacer) free() {
	debug.FreeOSMemory()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed = p.again; p.again {
		p.again = false
		time.AfterFunc(freeAfter, p.free)
	}
}
