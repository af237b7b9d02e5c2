package runs

import (
	"container/list"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Cache keeps what was read of files, for all bases of the process.
type Cache struct {
	tails, blocks lru
	short, long   *semaphore.Weighted // merges
}

// All bases with one cache make so many short merges at a time, and so many long ones.
// Each holds a file in memory.
const (
	shortMerges = 4
	longMerges  = 2
)

// longMerge is from how many bytes on a merge is long: short ones do not wait for it.
const longMerge = 256 << 20

// NewCache returns a cache that holds so many bytes of records, and so many of what
// finds them: indexes and filters.
func NewCache(records, indexes int) *Cache {
	return &Cache{
		blocks: lru{most: records}, tails: lru{most: indexes},
		short: semaphore.NewWeighted(shortMerges), long: semaphore.NewWeighted(longMerges),
	}
}

// lru keeps what was used most recently.
type lru struct {
	mu    sync.Mutex // protects the following
	most  int        // in bytes
	used  int
	order list.List // of *cached, the most recent first
	items map[place]*list.Element
}

// place is where something is in a file. Names of files are random.
type place struct {
	file   string
	offset uint64
}

type cached struct {
	at    place
	value any
	size  int
}

// cachedMemory is what an entry takes beside its value, in bytes.
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

// put keeps a value, unless it would push out much else.
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
