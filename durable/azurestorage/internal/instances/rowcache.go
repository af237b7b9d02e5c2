package instances

import (
	"maps"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// RowCache remembers the instance rows that this process wrote last, so that an
// instance that goes on need not have its row read for every episode. An entry
// may be out of date: whoever writes by its ETag finds out.
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
