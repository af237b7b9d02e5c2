package azurestorage

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// historyCache remembers the histories of executions that go on and that this
// process wrote to last, so that an episode need not read its history again. It
// forgets what was used longest ago when it has more than its bound of bytes.
//
// An entry may be out of date: another worker may have gone on with the instance.
//
//  1. A checkpoint that is based on one counts only if the sentinel still has the
//     entry's ETag, as always.
//  2. Messages are handed out by what an entry says. Before one is held back or
//     discarded, what is stored is read.
//  3. Whoever uses an entry takes it out, and puts it back after a commit. An
//     episode that failed, a lost partition, a rewind and a purge leave nothing.
type historyCache struct {
	mu    sync.Mutex // protects the following
	limit int
	size  int
	byID  map[string]*list.Element
	order list.List // of cachedHistory, what was used last in front
}

type cachedHistory struct {
	instanceID string
	history    storedHistory
}

// cacheOverhead is what an entry takes up besides its rows, in bytes; a rough
// guess.
const cacheOverhead = 1024

func (h *cachedHistory) size() int { return h.history.bytes + cacheOverhead }

// newHistoryCache returns a cache of that many bytes; it holds nothing if limit
// is not positive.
func newHistoryCache(limit int) *historyCache {
	return &historyCache{limit: limit, byID: map[string]*list.Element{}}
}

// put remembers a history, in the place of what was remembered of the instance.
func (c *historyCache) put(instanceID string, stored storedHistory) {
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

// take returns what is remembered of an instance and forgets it.
func (c *historyCache) take(instanceID string) (stored storedHistory, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(c.byID[instanceID])
}

// drop forgets the instances for which drop is true.
func (c *historyCache) drop(drop func(instanceID string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range c.byID {
		if drop(id) {
			c.remove(at)
		}
	}
}

// remove takes out an element that may be nil. c.mu is held.
func (c *historyCache) remove(at *list.Element) (stored storedHistory, ok bool) {
	if at == nil {
		return storedHistory{}, false
	}
	entry, _ := c.order.Remove(at).(cachedHistory) // there is nothing else in the list
	delete(c.byID, entry.instanceID)
	c.size -= entry.size()
	return entry.history, true
}

// remembered returns what this process remembers of an execution that goes on,
// any if executionID is empty; nil if that is not enough to go on with it.
func (h *TaskHub) remembered(instanceID, executionID string) *loadedInstance {
	stored, ok := h.histories.take(instanceID)
	if !ok || executionID != "" && executionID != stored.executionID {
		return nil
	}
	loaded := &loadedInstance{storedHistory: stored, row: h.rows.get(instanceID), unverified: true}
	if loaded.row == nil || !loaded.goesOn() {
		return nil
	}
	return loaded
}

// forget makes this process remember nothing of an instance.
func (h *TaskHub) forget(instanceID string) {
	h.histories.take(instanceID)
	h.rows.put(instanceID, nil)
}

// forgetPartition makes this process remember nothing of the instances of a
// partition that others may have from now on.
func (h *TaskHub) forgetPartition(p *partition) {
	ofPartition := func(instanceID string) bool { return h.partitionOf(instanceID) == p }
	h.histories.drop(ofPartition)
	h.rows.drop(ofPartition)
}

// asStored returns ev as it would be read from its row, which may refer to blobs
// by now, and how many bytes the row has.
func asStored(ev history.Event, row *wire.Row) (stored history.Event, size int, err error) {
	raw := row.JSON()
	decoded, err := wire.DecodeHistoryRow(raw)
	if err != nil {
		return nil, 0, fmt.Errorf("read back what was written: %w", err)
	}
	size = len(raw)
	if blobs := decoded.Blobs(); len(blobs) > 0 {
		whole := wire.EncodeHistoryRow(ev, "", 0, "")
		for _, b := range blobs {
			text := whole.Text(b.Column)
			decoded.Resolve(b.Column, text)
			size += len(text)
		}
	}
	stored, err = decoded.Event()
	return stored, size, err
}
