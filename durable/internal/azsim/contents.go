package azsim

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Message is a stored queue message.
type Message struct {
	ID           string
	Text         string
	VisibleAt    time.Time
	DequeueCount int
}

// Queues returns the names of all queues in order.
func (a *Account) Queues() []string { return withView(a, View.Queues) }

// Queues is like [Account.Queues].
func (v View) Queues() []string { return slices.Sorted(maps.Keys(v.a.queues)) }

// withView calls what with a view of the account.
func withView[T any](a *Account, what func(View) T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	return what(View{a})
}

// Messages returns the messages of a queue, including invisible ones, in the order of
// visibility.
func (a *Account) Messages(queueName string) []Message {
	return withView(a, func(v View) []Message { return v.Messages(queueName) })
}

// Messages is like [Account.Messages].
func (v View) Messages(queueName string) []Message {
	q := v.a.queues[queueName]
	if q == nil {
		return nil
	}
	var all []Message
	for _, m := range q.messages {
		all = append(all, Message{ID: m.id, Text: m.text, VisibleAt: m.visibleAt, DequeueCount: m.dequeueCount})
	}
	slices.SortStableFunc(all, func(x, y Message) int { return x.VisibleAt.Compare(y.VisibleAt) })
	return all
}

// Put enqueues a message with the given dequeue count. It returns false if the queue does not
// exist.
func (a *Account) Put(queueName, text string, dequeueCount int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queues[queueName]
	if q == nil {
		return false
	}
	m := &message{text: text, dequeueCount: dequeueCount, insertedAt: time.Now(), visibleAt: time.Now(), sent: a.tick()}
	roll := uint64(m.sent.UnixNano())
	m.id = fmt.Sprintf("m-%016x", mix(roll, 5))
	m.changeReceipt(roll)
	q.messages = append(q.messages, m)
	return true
}

// Tables returns the names of all tables in order.
func (a *Account) Tables() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, t := range a.tables {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return names
}

// Row is an entity of a table, with its columns as JSON values.
type Row struct {
	PartitionKey, RowKey string
	Columns              map[string]string
}

// Text returns the value of a text column, or "" if the row lacks it.
func (r Row) Text(column string) string {
	return jsonText(r.Columns[column])
}

// Rows returns the entities of a table in the order of their keys.
func (a *Account) Rows(tableName string) []Row {
	return withView(a, func(v View) []Row { return v.Rows(tableName) })
}

// Rows is like [Account.Rows].
func (v View) Rows(tableName string) []Row {
	t := v.a.tables[foldName(tableName)]
	if t == nil {
		return nil
	}
	var all []Row
	for _, e := range t.sorted() {
		all = append(all, e.row())
	}
	return all
}

// Row returns the row with the given keys; ok is false if it does not exist.
func (a *Account) Row(tableName, partitionKey, rowKey string) (row Row, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tables[foldName(tableName)]
	if t == nil {
		return Row{}, false
	}
	e := t.get(partitionKey, rowKey)
	if e == nil {
		return Row{}, false
	}
	return e.row(), true
}

// HasBlob reports whether a blob exists.
func (v View) HasBlob(containerName, name string) bool {
	c := v.a.containers[containerName]
	return c != nil && c.blobs[name] != nil
}

// Blob is a stored blob.
type Blob struct {
	Container, Name string
	Content         []byte
	LeaseID         string // of the active lease, or ""
	Metadata        http.Header
}

// Blobs returns the blobs of all containers in the order of their names.
func (a *Account) Blobs() []Blob {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Blob
	now := time.Now()
	for name, c := range a.containers {
		for _, b := range c.blobs {
			id := ""
			if b.lease.state(now) == leased {
				id = b.lease.id
			}
			all = append(all, Blob{Container: name, Name: b.name, Content: slices.Clone(b.content), LeaseID: id, Metadata: b.metadata.Clone()})
		}
	}
	slices.SortFunc(all, func(x, y Blob) int {
		return cmp.Or(cmp.Compare(x.Container, y.Container), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// Restore replaces each blob whose name contains text by a copy of itself, as tools do that
// copy or undelete a container. A copy has the same content and metadata, a new ETag and no
// lease.
func (a *Account) Restore(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.containers)) {
		blobs := a.containers[name].blobs
		for _, b := range slices.Sorted(maps.Keys(blobs)) {
			if strings.Contains(b, text) {
				blobs[b].lease = lease{}
				blobs[b].stamp(a.tick())
			}
		}
	}
}

// Vanish removes blobs of a container without a request, like a lifecycle rule, and returns
// their number. It removes the blobs for which is(name) returns true.
func (a *Account) Vanish(containerName string, is func(name string) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containers[containerName]
	before := len(c.blobs)
	maps.DeleteFunc(c.blobs, func(name string, _ *blob) bool { return is(name) })
	return before - len(c.blobs)
}

// Shorten truncates an append blob, as a failover of the account to another region can. It
// returns false if the blob is not longer than size.
func (a *Account) Shorten(containerName, blobName string, size int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.containers[containerName].blobs[blobName]
	if b == nil || len(b.content) <= size {
		return false
	}
	b.content = b.content[:size]
	b.stamp(a.tick())
	return true
}

// Snapshot creates a snapshot of a blob; the blob can then be deleted only together with its
// snapshots. It returns false if the blob does not exist.
func (a *Account) Snapshot(containerName, blobName string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containers[containerName]
	if c == nil || c.blobs[blobName] == nil {
		return false
	}
	c.blobs[blobName].snapshots++
	return true
}
