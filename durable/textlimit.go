package durable

import "fmt"

// What an orchestration can be started with, in bytes. Rows of tables have no room
// for longer names and versions, and .NET workers keep none of them elsewhere. Tags
// that a row has no room for are in a blob.
const (
	MaxNameLength = 1024    // of the orchestrator's name, and of a version
	MaxTagsLength = 1 << 20 // of the names and values of all tags of a call
)

// A TooLongError says that an orchestration cannot be started with a text.
type TooLongError struct {
	What          string // "name", "version" or "tags"
	Length, Limit int    // in bytes
}

// Error says how long the text may be.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("The %s of an orchestrator must not exceed %d bytes; %d are given.", e.What, e.Limit, e.Length)
}

// checkStart returns a *[TooLongError] if an orchestration cannot be started with
// these texts.
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
