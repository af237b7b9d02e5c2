package instances

import (
	"container/list"
	"maps"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// HistoryCache caches the histories of running executions that this process wrote last, so that an
// episode need not read its history again. It evicts the least recently used histories when it exceeds
// its size limit.
//
// An entry may be outdated, because another worker may have continued the instance:
//
//  1. A checkpoint based on an outdated entry fails, because the sentinel has another ETag.
//  2. An entry may decide that a message is delivered. Before a message is held back or
//     discarded, the stored history is read.
//  3. A session removes the entry, and stores it again after a commit. After a failed episode,
//     a lost partition, a rewind or a purge, the cache has no entry.
type HistoryCache struct {
	mu    sync.Mutex // guards the following fields
	limit int
	size  int
	byID  map[string]*list.Element
	order list.List // of cachedHistory, most recently used first
}

type cachedHistory struct {
	instanceID string
	history    History
}

// cacheOverhead is the approximate size of an entry without its rows, in bytes.
const cacheOverhead = 1024

func (h *cachedHistory) size() int { return h.history.bytes + cacheOverhead }

// newHistoryCache returns a cache of at most limit bytes. If limit is not positive, it caches nothing.
func newHistoryCache(limit int) *HistoryCache {
	return &HistoryCache{limit: limit, byID: map[string]*list.Element{}}
}

// Put caches a history and replaces the instance's previous entry.
func (c *HistoryCache) Put(instanceID string, stored History) {
	entry := cachedHistory{instanceID: instanceID, history: stored}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.byID[instanceID])
	if entry.size() > c.limit {
		return
	}
	c.byID[instanceID] = c.order.PushFront(entry)
	for c.size += entry.size(); c.size > c.limit; {
		c.remove(c.order.Back())
	}
}

// Take removes the entry of an instance and returns it.
func (c *HistoryCache) Take(instanceID string) (stored History, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(c.byID[instanceID])
}

// evict removes the entries of all instances for which drop returns true.
func (c *HistoryCache) evict(drop func(instanceID string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range c.byID {
		if drop(id) {
			c.remove(at)
		}
	}
}

// remove removes an element, which may be nil. The caller holds c.mu.
func (c *HistoryCache) remove(at *list.Element) (stored History, ok bool) {
	if at == nil {
		return History{}, false
	}
	entry, _ := c.order.Remove(at).(cachedHistory) // the list has no other elements
	delete(c.byID, entry.instanceID)
	c.size -= entry.size()
	return entry.history, true
}

// RowCache caches the rows that this process wrote last, so that a running instance's row need not be
// read for every episode. An entry may be outdated; a write with its ETag then fails.
type RowCache struct {
	mu   sync.Mutex
	rows map[string]*wire.InstanceRow // by instance ID
}

// maxCachedRows is the maximum number of rows in the cache. A full cache is emptied. A row without
// input and output has about 300 bytes.
const maxCachedRows = 4096

// Put caches the row of a running instance. A nil row, a row without an ETag, or the row of an ended
// instance removes the entry.
func (c *RowCache) Put(instanceID string, row *wire.InstanceRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if row == nil || row.ETag == "" || row.State.Status.IsTerminal() {
		delete(c.rows, instanceID)
		return
	}
	if len(c.rows) >= maxCachedRows || c.rows == nil {
		c.rows = map[string]*wire.InstanceRow{}
	}
	c.rows[instanceID] = row
}

// evict removes the entries of all instances for which drop returns true.
func (c *RowCache) evict(drop func(instanceID string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.rows, func(id string, _ *wire.InstanceRow) bool { return drop(id) })
}

// Get returns the cached row of an instance, or nil.
func (c *RowCache) Get(instanceID string) *wire.InstanceRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[instanceID]
}
