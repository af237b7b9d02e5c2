package durable

import "fmt"

// Limits of the texts in the start of an orchestration, in bytes. Names and versions
// are stored in table rows only, also by .NET workers, and rows have no room for longer
// ones. Tags that do not fit into a row are stored in a blob.
const (
	MaxNameLength = 1024    // for the name of the orchestrator, and for a version
	MaxTagsLength = 1 << 20 // for the names and values of all tags of a call
)

// TooLongError means that a text is too long for the start of an orchestration.
type TooLongError struct {
	What          string // "name", "version" or "tags"
	Length, Limit int    // in bytes
}

// Error names the text and its limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("The %s of an orchestrator must not exceed %d bytes; it has %d.", e.What, e.Limit, e.Length)
}

// checkStart returns a *[TooLongError] if one of the texts exceeds its limit.
func checkStart(name string, version Version, tags map[string]string) error {
	inTags := 0
	for k, v := range tags {
		inTags += len(k) + len(v)
	}
	for _, e := range []*TooLongError{
		{"name", len(name), MaxNameLength}, {"version", len(version), MaxNameLength}, {"tags", inTags, MaxTagsLength},
	} {
		if e.Length > e.Limit {
			return e
		}
	}
	return nil
}
