package durable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxInstanceIDLength is the maximum length of an instance ID in UTF-16 code units (the
// extension's DurableClient.cs, MaxInstanceIdLength).
const MaxInstanceIDLength = 256

// InstanceIDError means that an ID is not a valid ID for an orchestration instance or
// an entity.
type InstanceIDError struct {
	ID     InstanceID
	Reason string // a complete sentence
}

// Error returns the reason.
func (e *InstanceIDError) Error() string { return e.Reason }

// ValidateInstanceID returns an *[InstanceIDError] if id is not valid for a new
// orchestration instance. A valid ID has 1 to 256 characters. It contains no /, \, #, ?
// or control characters, and does not start with @, which marks entities.
func ValidateInstanceID(id InstanceID) error {
	reason := invalidIDReason(string(id))
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

// invalidIDReason returns the reason why s cannot be an instance ID, or an empty string if it
// can.
func invalidIDReason(s string) string {
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
