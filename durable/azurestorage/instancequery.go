package azurestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Instances implements [provider.Client]. The order is that of the escaped IDs;
// the page size has a bound of 1000. Where a page ends is said by the service, or, if it
// has too many bytes, by the key of its last row.
func (h *TaskHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if err := h.ensureCreated(ctx); err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	rows := store.Query{
		Filter: instanceFilter(q), Columns: wire.InstanceColumns(q.Fetch), Top: min(max(q.PageSize, 0), store.MaxPageSize),
		Continuation: q.Continuation,
	}
	if last, err := provider.DecodeContinuation(q.Continuation, 1); err == nil {
		rows.Continuation = ""
		rows.Filter = allOf(rows.Filter, "PartitionKey gt '"+store.Doubled(last[0])+"'")
	}
	raw, continuation, err := h.instancesTable.Page(ctx, rows)
	if q.Continuation != "" && store.StatusOf(err) == http.StatusBadRequest {
		err = fmt.Errorf("%w: %w", provider.ErrContinuation, err)
	}
	if err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	page := &provider.Page{Continuation: continuation}
	if err := h.fill(ctx, page, raw, q); err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	return page, nil
}

// fill puts the instances of rows on a page, until it is full. Short blobs are read
// several at a time, long ones one after the other, so that there is never much more in
// memory than a page may have.
func (h *TaskHub) fill(ctx context.Context, page *provider.Page, raw [][]byte, q provider.Query) error {
	room := q.Room()
	for window := range slices.Chunk(raw, blobsAtOnce) {
		raw = raw[len(window):]
		rows, failures := make([]*wire.InstanceRow, len(window)), make([]error, len(window))
		for i := range window {
			if rows[i], failures[i] = wire.DecodeInstanceRow(window[i]); failures[i] == nil && !q.Matches(&rows[i].State) {
				rows[i] = nil
			}
		}
		short := h.resolveShort(ctx, rows, room.Left()/blobsAtOnce)
		for i, row := range rows {
			state, err := short[i], failures[i]
			if err == nil && state == nil && row != nil {
				if state, err = h.resolveOrReadAgain(ctx, row, q); err != nil && !isUnreadable(err) {
					return err
				}
			}
			switch {
			case err != nil:
				page.Unreadable = append(page.Unreadable, provider.UnreadableInstance{InstanceID: wire.UnescapeKey(partitionKeyOf(window[i])), Cause: err})
			case state != nil:
				room.Take(state)
				page.Instances = append(page.Instances, state)
			}
			if isLast := len(raw) == 0 && i == len(window)-1; room.Left() == 0 && !isLast {
				page.Continuation = provider.EncodeContinuation(partitionKeyOf(window[i]))
				return nil
			}
		}
	}
	return nil
}

// resolveShort returns the states of rows, nil of those that are nil, have a text that is
// longer than limit, or cannot be read.
func (h *TaskHub) resolveShort(ctx context.Context, rows []*wire.InstanceRow, limit int) []*provider.InstanceState {
	states := make([]*provider.InstanceState, len(rows))
	var group errgroup.Group // whoever reads it again tells what is wrong
	for i, row := range rows {
		if row == nil {
			continue
		}
		group.Go(func() error {
			row := *row // which stays as it is
			if h.resolveState(ctx, &row, int64(limit)) == nil {
				states[i] = &row.State
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return states
}

// resolveOrReadAgain is resolveState for a row of a list. One whose blobs are gone is
// read again: it may have been purged or changed since. It returns nil if q does not
// select the instance now.
func (h *TaskHub) resolveOrReadAgain(ctx context.Context, row *wire.InstanceRow, q provider.Query) (*provider.InstanceState, error) {
	err := h.resolveState(ctx, row, wire.MaxDecompressed)
	if !store.IsNotFound(err) {
		return &row.State, err
	}
	state, err := h.Instance(ctx, row.State.Instance.InstanceID, q.Fetch)
	if errors.Is(err, provider.ErrInstanceNotFound) || err == nil && !q.Matches(state) {
		return nil, nil
	}
	return state, err
}

// isUnreadable reports whether err is the fault of what is stored: it cannot be
// decoded, or is not there.
func isUnreadable(err error) bool {
	_, damaged := errors.AsType[*wire.DamageError](err)
	return damaged || store.IsNotFound(err) && !store.IsMissing(err)
}

// partitionKeyOf returns the key of a row that perhaps cannot be decoded as a whole, "" if
// it has none.
func partitionKeyOf(raw []byte) string {
	var key struct{ PartitionKey string }
	if err := json.Unmarshal(raw, &key); err != nil {
		return ""
	}
	return key.PartitionKey
}

// instanceFilter returns q as an OData filter
// (DurableTask.AzureStorage/Tracking/OrchestrationInstanceStatusQueryCondition.cs,
// ToOData). It may select more than q does: of keys it is not said whether they are in
// the order of UTF-16, as in Azurite, or in that of characters.
func instanceFilter(q provider.Query) string {
	var conditions []string
	if !q.CreatedFrom.IsZero() {
		conditions = append(conditions, "CreatedTime ge "+odataTime(q.CreatedFrom))
	}
	if !q.CreatedTo.IsZero() {
		conditions = append(conditions, "CreatedTime le "+odataTime(q.CreatedTo))
	}
	if len(q.Statuses) > 0 {
		conditions = append(conditions, statusCondition(q.Statuses))
	}
	if q.IDPrefix != "" {
		prefix := wire.EscapeKey(q.IDPrefix)
		conditions = append(conditions, "PartitionKey ge '"+store.Doubled(prefix)+"'")
		if end, ok := prefixEnd(prefix); ok {
			conditions = append(conditions, "PartitionKey lt '"+store.Doubled(end)+"'")
		}
	}
	if q.Name != "" {
		conditions = append(conditions, "Name eq '"+store.Doubled(q.Name)+"'")
	}
	if q.ExcludeEntities {
		conditions = append(conditions, "PartitionKey lt '@' or PartitionKey ge 'A'")
	}
	return allOf(conditions...)
}

// allOf returns the filter that is true of what all conditions are true of. One that is
// empty says nothing.
func allOf(conditions ...string) string {
	conditions = slices.DeleteFunc(conditions, func(c string) bool { return c == "" })
	if len(conditions) == 1 {
		return conditions[0]
	}
	for i := range conditions {
		conditions[i] = "(" + conditions[i] + ")"
	}
	return strings.Join(conditions, " and ")
}

func statusCondition(statuses []history.RuntimeStatus) string {
	terms := make([]string, len(statuses))
	for i, s := range statuses {
		terms[i] = "RuntimeStatus eq '" + s.String() + "'"
	}
	return strings.Join(terms, " or ")
}

func odataTime(t time.Time) string {
	return "datetime'" + t.UTC().Format("2006-01-02T15:04:05.0000000Z") + "'"
}

// prefixEnd returns a key after all that begin with prefix, whether keys are in the
// order of UTF-16 or of UTF-8: its last character is one higher. One that has no such
// successor in both orders is left out, so that others than those may come before
// the end, too. ok is false if there is no end
// (OrchestrationInstanceStatusQueryCondition.cs, ToOData, takes the next code unit).
func prefixEnd(prefix string) (end string, ok bool) {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == 0xD7FF: // halves of UTF-16 pairs are no characters
			return prefix + "\uE000", true
		case last < utf8.RuneError, last > 0xFFFF && last < utf8.MaxRune:
			return prefix + string(last+1), true
		}
	}
	return "", false
}
