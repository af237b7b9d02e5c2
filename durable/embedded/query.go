package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxScanned is how many instances are looked at for one page, so that a query
// that matches few does not keep writers waiting.
const maxScanned = 5_000

// Instances implements [provider.Client]. Pages are in the order of the
// instances' IDs.
func (h *Hub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from, err := startOfPage(q)
	if err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	size := q.PageSize
	if size <= 0 {
		size = h.config.PageSize
	}
	page, room := &provider.Page{}, q.Room()
	err = h.read("query instances", func(t tables) error {
		scanned := 0
		return t.Scan(instancesTable, from, func(id string, value []byte) (bool, error) {
			if !strings.HasPrefix(id, q.IDPrefix) {
				return true, nil
			}
			if len(page.Instances) == size || room.Left() == 0 || scanned == maxScanned {
				page.Continuation = provider.EncodeContinuation(id)
				return true, nil
			}
			scanned++
			s, err := t.match(id, value, q)
			if damage, ok := errors.AsType[*logstore.DamageError](err); ok {
				page.Unreadable = append(page.Unreadable, provider.UnreadableInstance{InstanceID: id, Cause: damage})
				return false, nil
			}
			if s != nil {
				room.Take(s)
				page.Instances = append(page.Instances, s)
			}
			return err != nil, err
		})
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// match returns the instance of a row, nil if q does not select it.
func (t tables) match(id string, value []byte, q provider.Query) (*provider.InstanceState, error) {
	r, err := decodeRow(value)
	if err != nil {
		return nil, t.Damage(instancesTable, []byte(id), err)
	}
	if !q.Matches(r.state(id)) {
		return nil, nil
	}
	return t.state(id, r, q.Fetch)
}

// startOfPage returns the first instance ID that may be on a query's page. A
// continuation names it.
func startOfPage(q provider.Query) (string, error) {
	if q.Continuation == "" {
		return q.IDPrefix, nil
	}
	places, err := provider.DecodeContinuation(q.Continuation, 1)
	if err != nil {
		return "", err
	}
	return max(q.IDPrefix, places[0]), nil
}
