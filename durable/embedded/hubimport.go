package embedded

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Import implements [provider.Portable]. A hub that was not filled to the end
// cannot be told from one that was: fill a file that has another name at first.
func (h *Hub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := h.busy(); err != nil {
		return err
	}
	empty := true
	err := h.read("look into task hub", func(t tables) error {
		for id := range hubTables {
			err := t.Scan(logstore.Table(id), "", func(string, []byte) (bool, error) {
				empty = false
				return true, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("%s: %w", h.path, provider.ErrHubNotEmpty)
	}
	im := &importer{h: h}
	if err := fill(im); err != nil {
		return err
	}
	return im.flush(ctx)
}

// importedAtOnce is how much of what is imported goes into one transaction, in
// records and roughly in bytes.
const (
	importedAtOnce      = 500
	importedBytesAtOnce = 4 << 20
)

// An importer gathers what is imported into transactions.
type importer struct {
	h       *Hub
	pending []func(*txn) error
	size    int
}

func (im *importer) add(ctx context.Context, size int, apply func(*txn) error) error {
	im.pending, im.size = append(im.pending, apply), im.size+size
	if len(im.pending) < importedAtOnce && im.size < importedBytesAtOnce {
		return nil
	}
	return im.flush(ctx)
}

// flush makes durable what was gathered.
func (im *importer) flush(ctx context.Context) error {
	all := im.pending
	im.pending, im.size = nil, 0
	if len(all) == 0 {
		return nil
	}
	err := im.h.writer.Do(ctx, func(t *txn) error {
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

// importedEvents is how many events of an imported history share a record.
const importedEvents = 64

// Instance implements [provider.HubWriter].
func (im *importer) Instance(ctx context.Context, state *provider.InstanceState, past []history.Event) error {
	id := state.Instance.InstanceID
	if err := checkID(id); err != nil {
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
		r := importedRow(state)
		r.number = t.h.numbers.Add(1)
		for i, b := range episodes {
			t.Put(historyTable, eventKey(r.number, i*importedEvents), b)
		}
		return t.putRow(id, r)
	})
}

func importedRow(s *provider.InstanceState) *row {
	r := &row{
		execution: s.Instance.ExecutionID, name: s.Name, version: s.Version, status: s.Status,
		created: s.CreatedAt, updated: s.LastUpdatedAt, completed: s.CompletedAt, scheduled: s.ScheduledAt,
		generation: s.Generation, tags: s.Tags,
		firstCreated: s.FirstCreatedAt,
	}
	r.input, r.output, r.custom = r.input.holds(s.Input), r.output.holds(s.Output), r.custom.holds(s.CustomStatus)
	return r
}

// Activity implements [provider.HubWriter].
func (im *importer) Activity(ctx context.Context, task provider.TaskMessage) error {
	record, err := encodeMessage(task)
	if err != nil {
		return fmt.Errorf("import activity: %w", err)
	}
	return im.add(ctx, len(record), func(t *txn) error {
		t.addActivity(record)
		return nil
	})
}

// Message implements [provider.HubWriter].
func (im *importer) Message(ctx context.Context, msg provider.TaskMessage) error {
	if err := checkID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("import message: %w", err)
	}
	record, err := encodeMessage(msg)
	if err != nil {
		return fmt.Errorf("import message for instance %s: %w", msg.Target.InstanceID, err)
	}
	due := provider.Due(msg)
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
