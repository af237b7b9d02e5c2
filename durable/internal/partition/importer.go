package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// importedAtOnce and importedBytesAtOnce bound a transaction of an import, in operations and in
// bytes.
const (
	importedAtOnce      = 500
	importedBytesAtOnce = 4 << 20
)

// Importer is a [provider.HubWriter] that writes many records per transaction. Call Flush after
// the last record.
type Importer struct {
	p       *Partition
	pending []func(*txn) error
	size    int
}

// NewImporter returns an importer into p, which must be empty.
func NewImporter(p *Partition) *Importer { return &Importer{p: p} }

func (im *Importer) add(ctx context.Context, size int, apply func(*txn) error) error {
	im.pending, im.size = append(im.pending, apply), im.size+size
	if len(im.pending) < importedAtOnce && im.size < importedBytesAtOnce {
		return nil
	}
	return im.Flush(ctx)
}

// Flush makes the pending records durable.
func (im *Importer) Flush(ctx context.Context) error {
	all := im.pending
	im.pending, im.size = nil, 0
	if len(all) == 0 {
		return nil
	}
	err := im.p.writer.Do(ctx, func(t *txn) error {
		for _, apply := range all {
			if err := apply(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("import into task hub: %w", err)
	}
	return nil
}

// importedEvents is the number of events of an imported history in one record.
const importedEvents = 64

// Instance implements [provider.HubWriter].
func (im *Importer) Instance(ctx context.Context, state *provider.InstanceState, past []history.Event) error {
	id := state.Instance.InstanceID
	if err := CheckID(id); err != nil {
		return fmt.Errorf("import instance: %w", err)
	}
	var episodes [][]byte
	size := 0
	for rest := past; len(rest) > 0; {
		n := min(len(rest), importedEvents)
		b, err := encodeEpisode(rest[:n])
		if err != nil {
			return fmt.Errorf("import instance %s: %w", id, err)
		}
		episodes, rest, size = append(episodes, b), rest[n:], size+len(b)
	}
	return im.add(ctx, size, func(t *txn) error {
		r := &row{number: t.p.numbers.Add(1), InstanceState: *state}
		for i, b := range episodes {
			t.Put(historyTable, eventKey(r.number, i*importedEvents), b)
		}
		return t.putRow(r)
	})
}

// Activity implements [provider.HubWriter].
func (im *Importer) Activity(ctx context.Context, task provider.TaskMessage) error {
	record, err := encodeMessage(task)
	if err != nil {
		return fmt.Errorf("import activity: %w", err)
	}
	return im.add(ctx, len(record), func(t *txn) error {
		t.addTask(record)
		return nil
	})
}

// Message implements [provider.HubWriter].
func (im *Importer) Message(ctx context.Context, msg provider.TaskMessage) error {
	if err := CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("import message: %w", err)
	}
	record, err := encodeMessage(msg)
	if err != nil {
		return fmt.Errorf("import message for instance %s: %w", msg.Target.InstanceID, err)
	}
	due := provider.DueTime(msg)
	_, isTimer := msg.Event.(*history.TimerFired)
	return im.add(ctx, len(record), func(t *txn) error {
		if isTimer || due.After(time.Now()) {
			t.addTimer(record, msg, due)
		} else {
			t.addMessage(record, msg)
		}
		return nil
	})
}
