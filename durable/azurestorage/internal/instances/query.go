package instances

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

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
