package runs

import (
	"container/list"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Cache holds recently read parts of files. All bases of a process can share one. It also limits
// the number of concurrent merges.
type Cache struct {
	tails, blocks lru
	short, long   *semaphore.Weighted // slots for merges
}

// Maximum number of concurrent short and long merges of all bases with one cache. Each merge holds
// a file in memory.
const (
	shortMerges = 4
	longMerges  = 2
)

// longMerge is the size from which a merge is long, in bytes. Short merges do not wait for long
// ones.
const longMerge = 256 << 20

// NewCache returns a cache. records limits the bytes of cached records, indexes the bytes of cached
// indexes and filters.
func NewCache(records, indexes int) *Cache {
	return &Cache{
		blocks: lru{most: records}, tails: lru{most: indexes},
		short: semaphore.NewWeighted(shortMerges), long: semaphore.NewWeighted(longMerges),
	}
}

// lru is a cache that evicts the least recently used value.
type lru struct {
	mu    sync.Mutex // protects the fields below
	most  int        // in bytes
	used  int
	order list.List // of *cached, most recent first
	items map[place]*list.Element
}

// place is a location in a file. File names are random, so a place is unique.
type place struct {
	file   string
	offset uint64
}

type cached struct {
	at    place
	value any
	size  int
}

// cachedMemory is the memory use of an entry without its value, in bytes.
const cachedMemory = 250

func (c *lru) get(at place) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[at]
	if !ok {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).value
}

// put stores a value, unless it would take more than a quarter of the cache.
func (c *lru) put(at place, value any, size int) {
	if size += cachedMemory; size > c.most/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items == nil {
		c.items = map[place]*list.Element{}
	}
	if e, ok := c.items[at]; ok {
		c.order.MoveToFront(e)
		return
	}
	c.items[at] = c.order.PushFront(&cached{at, value, size})
	for c.used += size; c.used > c.most; {
		old := c.order.Remove(c.order.Back()).(*cached)
		delete(c.items, old.at)
		c.used -= old.size
	}
}
