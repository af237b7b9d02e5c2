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
	reason := unfit(string(id))
	switch {
	case id == "":
		reason = "Instance IDs must not be empty."
	case id[0] == '@' && utf8.ValidString(string(id)):
		reason = "Orchestration instance ids must not start with @."
	}
	if reason == "" {
		return nil
	}
	return &InstanceIDError{ID: id, Reason: reason}
}

// unfit says why s cannot be the ID of any instance, empty if it can.
func unfit(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune(`/\#?`, r) || unicode.IsControl(r) })
	switch {
	case len(utf16.Encode([]rune(s))) > MaxInstanceIDLength:
		return fmt.Sprintf("Instance ID lengths must not exceed %d characters.", MaxInstanceIDLength)
	case !utf8.ValidString(s):
		return "Instance IDs must be valid UTF-8."
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(s[at:])
		return fmt.Sprintf("Instance IDs must not contain /, \\, #, ? or control characters; %q contains %q.", s, r)
	}
	return ""
}
