package azurestorage

import (
	"context"
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
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobsAtOnce)
	for i := range raw {
		row, err := decodeInstanceRow(raw[i])
		if err != nil {
			return nil, fmt.Errorf("query instances: %w", err)
		}
		if !q.Matches(&row.State) {
			continue
		}
		page.Instances = append(page.Instances, &row.State)
		group.Go(func() error { return h.resolveState(ctx, row) })
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("query instances: %w", err)
	}
	return page, nil
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
