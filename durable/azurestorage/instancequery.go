package azurestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Instances implements [provider.Client]. The order is that of the escaped IDs;
// the page size has a bound of 1000.
func (h *TaskHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if err := h.ensureCreated(ctx); err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	raw, continuation, err := h.instancesTable.page(ctx, tableQuery{
		filter: instanceFilter(q), columns: instanceColumns(q.Fetch), top: min(max(q.PageSize, 0), maxPageSize),
		continuation: q.Continuation,
	})
	if err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	page := &provider.Page{Continuation: continuation}
	found, failures := make([]*provider.InstanceState, len(raw)), make([]error, len(raw))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobsAtOnce)
	for i := range raw {
		row, err := decodeInstanceRow(raw[i])
		if err != nil {
			failures[i] = err
			continue
		}
		if !q.Matches(&row.State) {
			continue
		}
		group.Go(func() error {
			found[i], failures[i] = h.resolveOrReadAgain(ctx, row, q)
			if isUnreadable(failures[i]) {
				return nil
			}
			return failures[i]
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	for i, state := range found {
		switch {
		case failures[i] != nil:
			page.Unreadable = append(page.Unreadable, provider.UnreadableInstance{InstanceID: instanceIDOf(raw[i]), Cause: failures[i]})
		case state != nil:
			page.Instances = append(page.Instances, state)
		}
	}
	return page, nil
}

// resolveOrReadAgain is resolveState for a row of a list. One whose blobs are gone is
// read again: it may have been purged or changed since. It returns nil if q does not
// select the instance now.
func (h *TaskHub) resolveOrReadAgain(ctx context.Context, row *instanceRow, q provider.Query) (*provider.InstanceState, error) {
	err := h.resolveState(ctx, row)
	if !isNotFound(err) {
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
	_, damaged := errors.AsType[*damageError](err)
	return damaged || isNotFound(err) && !isMissing(err)
}

// instanceIDOf returns the ID in a row that cannot be decoded as a whole, "" if it has
// none.
func instanceIDOf(raw []byte) string {
	var key struct{ PartitionKey string }
	if err := json.Unmarshal(raw, &key); err != nil {
		return ""
	}
	return unescapeKey(key.PartitionKey)
}

// maxPageSize is the most rows that the service returns at once.
const maxPageSize = 1000

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
		prefix := escapeKey(q.IDPrefix)
		conditions = append(conditions, "PartitionKey ge '"+doubled(prefix)+"'")
		if end, ok := prefixEnd(prefix); ok {
			conditions = append(conditions, "PartitionKey lt '"+doubled(end)+"'")
		}
	}
	if q.Name != "" {
		conditions = append(conditions, "Name eq '"+doubled(q.Name)+"'")
	}
	if q.ExcludeEntities {
		conditions = append(conditions, "PartitionKey lt '@' or PartitionKey ge 'A'")
	}
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
