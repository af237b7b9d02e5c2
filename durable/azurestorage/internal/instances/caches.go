package instances

import (
	"container/list"
	"maps"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// HistoryCache remembers the histories of executions that go on and that this
// process wrote to last, so that an episode need not read its history again. It
// forgets what was used longest ago when it has more than its bound of bytes.
//
// An entry may be out of date: another worker may have gone on with the instance.
//
//  1. A checkpoint that is based on one counts only if the sentinel still has the
//     entry's ETag, as always.
//  2. An entry decides which messages are delivered. Before one is held back or
//     discarded, what is stored is read.
//  3. A session takes the entry out, and puts it back after a commit. An
//     episode that failed, a lost partition, a rewind and a purge leave nothing.
type HistoryCache struct {
	mu    sync.Mutex // protects the following
	limit int
	size  int
	byID  map[string]*list.Element
	order list.List // of cachedHistory, what was used last in front
}

type cachedHistory struct {
	instanceID string
	history    History
}

// cacheOverhead is the size of an entry besides its rows, in bytes; a rough guess.
const cacheOverhead = 1024

func (h *cachedHistory) size() int { return h.history.bytes + cacheOverhead }

// newHistoryCache returns a cache of that many bytes; it holds nothing if limit
// is not positive.
func newHistoryCache(limit int) *HistoryCache {
	return &HistoryCache{limit: limit, byID: map[string]*list.Element{}}
}

// Put remembers a history, in the place of what was remembered of the instance.
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

// Take returns what is remembered of an instance and forgets it.
func (c *HistoryCache) Take(instanceID string) (stored History, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(c.byID[instanceID])
}

// drop forgets the instances for which drop is true.
func (c *HistoryCache) drop(drop func(instanceID string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range c.byID {
		if drop(id) {
			c.remove(at)
		}
	}
}

// remove takes out an element that may be nil. c.mu is held.
func (c *HistoryCache) remove(at *list.Element) (stored History, ok bool) {
	if at == nil {
		return History{}, false
	}
	entry, _ := c.order.Remove(at).(cachedHistory) // there is nothing else in the list
	delete(c.byID, entry.instanceID)
	c.size -= entry.size()
	return entry.history, true
}

// RowCache remembers the instance rows that this process wrote last, so that an
// instance that goes on need not have its row read for every episode. An entry
// may be out of date: a write with its ETag fails then.
type RowCache struct {
	mu   sync.Mutex
	rows map[string]*wire.InstanceRow // by instance ID
}

// maxCachedRows bounds the cache. A row without input and output is about
// 300 bytes.
const maxCachedRows = 4096

// Put remembers the row of an instance that goes on, and forgets that of one
// that has ended.
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

// drop forgets the rows of the instances for which drop is true.
func (c *RowCache) drop(drop func(instanceID string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.rows, func(id string, _ *wire.InstanceRow) bool { return drop(id) })
}

// Get returns the row of an instance, nil if it is not remembered.
func (c *RowCache) Get(instanceID string) *wire.InstanceRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[instanceID]
}
