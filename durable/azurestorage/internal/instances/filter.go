package instances

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// instanceFilter returns q as an OData filter
// (DurableTask.AzureStorage/Tracking/OrchestrationInstanceStatusQueryCondition.cs, ToOData). It may
// select more instances than q, because the order of keys is not specified: it may be the order of
// UTF-16 code units, as in Azurite, or of characters.
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
		conditions = append(conditions, "PartitionKey ge '"+store.EscapeOData(prefix)+"'")
		if end, ok := prefixEnd(prefix); ok {
			conditions = append(conditions, "PartitionKey lt '"+store.EscapeOData(end)+"'")
		}
	}
	if q.Name != "" {
		conditions = append(conditions, "Name eq '"+store.EscapeOData(q.Name)+"'")
	}
	if q.ExcludeEntities {
		conditions = append(conditions, "PartitionKey lt '@' or PartitionKey ge 'A'")
	}
	return allOf(conditions...)
}

// allOf joins conditions with "and". It ignores empty conditions.
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

// prefixEnd returns a key that follows all keys with the given prefix, in the order of UTF-16 code
// units and of UTF-8. It increments the last character. A character without a successor in both orders
// is removed first, so the range may then contain other keys as well. ok is false if no such key
// exists. (.NET increments the last code unit: OrchestrationInstanceStatusQueryCondition.cs, ToOData.)
func prefixEnd(prefix string) (end string, ok bool) {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == 0xD7FF: // surrogates are not characters
			return prefix + "\uE000", true
		case last < utf8.RuneError, last > 0xFFFF && last < utf8.MaxRune:
			return prefix + string(last+1), true
		}
	}
	return "", false
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
