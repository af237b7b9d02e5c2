package azsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// savedAccount is the content of an account as JSON. It has no leases.
type savedAccount struct {
	Queues     map[string]savedQueue     `json:"queues"`
	Tables     map[string][]savedEntity  `json:"tables"`
	Containers map[string]savedContainer `json:"containers"`
}

type savedQueue struct {
	Metadata http.Header    `json:"metadata,omitempty"`
	Messages []savedMessage `json:"messages"` // in the order of sending
}

func (s savedQueue) load(a *Account) *queue {
	q := &queue{metadata: s.Metadata}
	for _, m := range s.Messages {
		sent := a.tick()
		one := &message{
			id: m.ID, text: m.Text, insertedAt: m.InsertedAt, expiresAt: m.ExpiresAt, visibleAt: m.VisibleAt, dequeueCount: m.DequeueCount, sent: sent,
		}
		one.changeReceipt(uint64(sent.UnixNano()))
		q.messages = append(q.messages, one)
	}
	return q
}

type savedMessage struct {
	ID           string    `json:"id"`
	Text         string    `json:"text"`
	InsertedAt   time.Time `json:"insertedAt"`
	ExpiresAt    time.Time `json:"expiresAt,omitzero"`
	VisibleAt    time.Time `json:"visibleAt"`
	DequeueCount int       `json:"dequeueCount"`
}

type savedEntity struct {
	PartitionKey string        `json:"partitionKey"`
	RowKey       string        `json:"rowKey"`
	Columns      []savedColumn `json:"columns"`
}

func (s savedEntity) load() (*entity, error) {
	e := &entity{partitionKey: s.PartitionKey, rowKey: s.RowKey}
	for _, c := range s.Columns {
		one := column{name: c.Name, typ: c.Type, json: c.Value}
		if err := one.parse(); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		e.columns = append(e.columns, one)
	}
	return e, nil
}

type savedColumn struct {
	Name  string          `json:"name"`
	Type  string          `json:"type,omitempty"`
	Value json.RawMessage `json:"value"`
}

type savedContainer struct {
	Metadata http.Header `json:"metadata,omitempty"`
	Blobs    []savedBlob `json:"blobs"`
}

func (s savedContainer) load(a *Account) *container {
	at := a.tick()
	c := &container{metadata: s.Metadata, blobs: map[string]*blob{}, etag: etagOf(at), changed: at}
	for _, b := range s.Blobs {
		one := &blob{name: b.Name, kind: b.Kind, content: b.Content, blocks: b.Blocks, md5: b.MD5, contentType: b.ContentType, metadata: b.Metadata, created: b.Created}
		one.stamp(a.tick())
		c.blobs[b.Name] = one
	}
	return c
}

type savedBlob struct {
	Name        string      `json:"name"`
	Kind        string      `json:"kind"`
	Content     []byte      `json:"content"`
	Blocks      int         `json:"blocks,omitempty"`
	MD5         string      `json:"md5,omitempty"`
	ContentType string      `json:"contentType,omitempty"`
	Metadata    http.Header `json:"metadata,omitempty"`
	Created     time.Time   `json:"created"`
}

// Save returns the content of an account as JSON, without leases. [Load] creates an account from it.
func Save(a *Account) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	saved := savedAccount{Queues: map[string]savedQueue{}, Tables: map[string][]savedEntity{}, Containers: map[string]savedContainer{}}
	for name, q := range a.queues {
		s := savedQueue{Metadata: q.metadata}
		for _, m := range q.messages {
			s.Messages = append(s.Messages, savedMessage{m.id, m.text, m.insertedAt, m.expiresAt, m.visibleAt, m.dequeueCount})
		}
		saved.Queues[name] = s
	}
	for _, t := range a.tables {
		all := []savedEntity{}
		for _, e := range t.sorted() {
			s := savedEntity{PartitionKey: e.partitionKey, RowKey: e.rowKey}
			for _, c := range e.columns {
				s.Columns = append(s.Columns, savedColumn{c.name, c.typ, c.json})
			}
			all = append(all, s)
		}
		saved.Tables[t.name] = all
	}
	for name, c := range a.containers {
		s := savedContainer{Metadata: c.metadata}
		for _, key := range slices.Sorted(maps.Keys(c.blobs)) {
			b := c.blobs[key]
			s.Blobs = append(s.Blobs, savedBlob{b.name, b.kind, b.content, b.blocks, b.md5, b.contentType, b.metadata, b.created})
		}
		saved.Containers[name] = s
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // keeps the JSON of columns
	err := encoder.Encode(saved)
	return text.Bytes(), err
}

// Load returns an account with the content that [Save] returned. Its ETags and pop receipts are new, and nothing
// is leased.
func Load(cfg Config, content []byte) (*Account, error) {
	var saved savedAccount
	if err := json.Unmarshal(content, &saved); err != nil {
		return nil, fmt.Errorf("load an account: %w", err)
	}
	a := New(cfg)
	for name, s := range saved.Queues {
		a.queues[name] = s.load(a)
	}
	for name, rows := range saved.Tables {
		t := &table{name: name, entities: map[[2]string]*entity{}}
		for _, row := range rows {
			e, err := row.load()
			if err != nil {
				return nil, fmt.Errorf("load a row of table %s: %w", name, err)
			}
			e.stamp(a.tick())
			t.put(e)
		}
		a.tables[foldName(name)] = t
	}
	for name, s := range saved.Containers {
		a.containers[name] = s.load(a)
	}
	return a, nil
}
