package azurestorage

import (
	"fmt"
	"strings"
	"unicode"
)

// The limits of the length of a hub's name, in characters.
const (
	MinHubNameLength = 3
	MaxHubNameLength = 45
)

// ValidateHubName returns an error unless name is a valid task hub name: 3 to 45 ASCII letters and
// digits, starting with a letter. All resource names that derive from such a name are valid.
func ValidateHubName(name string) error {
	if !isAlphanumeric(name, MinHubNameLength, MaxHubNameLength) {
		return fmt.Errorf("task hub name %q: want %d to %d letters and digits, beginning with a letter", name, MinHubNameLength, MaxHubNameLength)
	}
	return nil
}

// isAlphanumeric reports whether s has shortest to longest characters, all of them ASCII letters or
// digits, and starts with a letter.
func isAlphanumeric(s string, shortest, longest int) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if digit := '0' <= c && c <= '9'; !letter && (!digit || i == 0) {
			return false
		}
	}
	return shortest <= len(s) && len(s) <= longest
}

// ValidateTrackingPrefix returns an error unless prefix is a valid prefix for table names: 1 to 54
// ASCII letters and digits, starting with a letter.
func ValidateTrackingPrefix(prefix string) error {
	if !isAlphanumeric(prefix, 1, maxTrackingPrefixLength) {
		return fmt.Errorf("tracking store prefix %q: want 1 to %d letters and digits, beginning with a letter", prefix, maxTrackingPrefixLength)
	}
	return nil
}

// maxTrackingPrefixLength leaves room for "Instances" within the 63 characters of a table name.
const maxTrackingPrefixLength = 63 - len("Instances")

// SanitizeHubName derives a hub name from another name, such as a site name, in the same way as the
// .NET extension (WebJobs.Extensions.DurableTask/Options/AzureStorageOptions.cs, SanitizeHubName).
// It removes all characters except letters and digits and inserts "t" before a leading digit. It
// truncates the result to 45 characters and pads it to at least 3. As in .NET, it keeps letters
// outside ASCII, which [ValidateHubName] rejects.
func SanitizeHubName(name string) string {
	kept := strings.Map(func(r rune) rune {
		// char.IsLetterOrDigit tests UTF-16 units and knows no letter above U+FFFF.
		if r <= 0xFFFF && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return -1
	}, name)
	if kept == "" {
		return "DefaultTaskHub"
	}
	runes := []rune(kept)
	if unicode.IsDigit(runes[0]) {
		runes = append([]rune{'t'}, runes...)
	}
	if len(runes) > MaxHubNameLength {
		runes = runes[:MaxHubNameLength]
	}
	if len(runes) < MinHubNameLength {
		return string(runes) + "Hub"
	}
	return string(runes)
}
