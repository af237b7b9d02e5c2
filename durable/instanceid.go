package durable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxInstanceIDLength is how long an instance's ID may be, in UTF-16 units
// (the extension's DurableClient.cs, MaxInstanceIdLength).
const MaxInstanceIDLength = 256

// An InstanceIDError says why an ID cannot be an orchestration instance's.
type InstanceIDError struct {
	ID     InstanceID
	Reason string // a whole sentence
}

// Error returns the reason.
func (e *InstanceIDError) Error() string { return e.Reason }

// ValidateInstanceID returns an *[InstanceIDError] if id cannot be given to a
// new orchestration instance: at most 256 characters, none of / \ # ? and no
// control characters, and no @ in front, which marks entities. An empty ID is
// not one either.
func ValidateInstanceID(id InstanceID) error {
	reason := ""
	s := string(id)
	at := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune(`/\#?`, r) || unicode.IsControl(r) })
	switch {
	case s == "":
		reason = "Instance IDs must not be empty."
	case len(utf16.Encode([]rune(s))) > MaxInstanceIDLength:
		reason = fmt.Sprintf("Instance ID lengths must not exceed %d characters.", MaxInstanceIDLength)
	case !utf8.ValidString(s):
		reason = "Instance IDs must be valid UTF-8."
	case s[0] == '@':
		reason = "Orchestration instance ids must not start with @."
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(s[at:])
		reason = fmt.Sprintf("Instance IDs must not contain /, \\, #, ? or control characters; %q contains %q.", s, r)
	default:
		return nil
	}
	return &InstanceIDError{ID: id, Reason: reason}
}
