package azurestorage

import (
	"fmt"
	"strings"
	"unicode"
)

// The bounds of a hub's name, in characters.
const (
	MinHubNameLength = 3
	MaxHubNameLength = 45
)

// ValidateHubName reports whether name can name a task hub: 3 to 45 ASCII
// letters and digits, of which the first is a letter. All names made from such
// a one are valid for tables, queues and containers.
func ValidateHubName(name string) error {
	if !isAlphanumeric(name, MinHubNameLength, MaxHubNameLength) {
		return fmt.Errorf("task hub name %q: want %d to %d letters and digits, beginning with a letter", name, MinHubNameLength, MaxHubNameLength)
	}
	return nil
}

// isAlphanumeric reports whether s is shortest to longest ASCII letters and digits, of which
// the first is a letter.
func isAlphanumeric(s string, shortest, longest int) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if digit := '0' <= c && c <= '9'; !letter && (!digit || i == 0) {
			return false
		}
	}
	return shortest <= len(s) && len(s) <= longest
}

// ValidateTrackingPrefix reports whether the names of tables can begin with
// prefix: 1 to 54 ASCII letters and digits, of which the first is a letter.
func ValidateTrackingPrefix(prefix string) error {
	if !isAlphanumeric(prefix, 1, maxTrackingPrefixLength) {
		return fmt.Errorf("tracking store prefix %q: want 1 to %d letters and digits, beginning with a letter", prefix, maxTrackingPrefixLength)
	}
	return nil
}

// maxTrackingPrefixLength leaves room for "Instances" in the name of a table.
const maxTrackingPrefixLength = 63 - len("Instances")

// SanitizeHubName makes a hub's name out of one that was not chosen as such,
// like that of a web site, the way the .NET extension does
// (WebJobs.Extensions.DurableTask/Options/AzureStorageOptions.cs,
// SanitizeHubName): it drops all but letters and digits, puts "t" before a
// leading digit, cuts the result to 45 characters and makes it at least 3 long.
// As in .NET, letters outside ASCII stay, and [ValidateHubName] refuses them.
func SanitizeHubName(name string) string {
	kept := strings.Map(func(r rune) rune {
		// char.IsLetterOrDigit sees UTF-16 units and knows no letter beyond U+FFFF.
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
