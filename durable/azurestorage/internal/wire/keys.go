package wire

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// EscapeKey converts an instance ID into a partition key, which may contain neither / \ # ? nor
// control characters. It replaces such a character by ^ and a substitute, and ^ by ^^
// (DurableTask.AzureStorage/Tracking/KeySanitation.cs, EscapePartitionKey).
func EscapeKey(id string) string {
	if strings.IndexFunc(id, isForbiddenInKey) < 0 {
		return id
	}
	var b strings.Builder
	b.Grow(len(id) + 8)
	for _, r := range id {
		if !isForbiddenInKey(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteByte('^')
		switch r {
		case '^':
			b.WriteByte('^')
		case '/':
			b.WriteByte('0')
		case '\\':
			b.WriteByte('1')
		case '#':
			b.WriteByte('2')
		case '?':
			b.WriteByte('3')
		default:
			b.WriteRune(r + controlOffset)
		}
	}
	return b.String()
}

// maxKeyUnits is the service's maximum length of a key, in UTF-16 code units: 1 KiB.
const maxKeyUnits = 512

// CheckID returns an error if an instance ID is too long for a row.
func CheckID(id string) error {
	if n := utf16Length(EscapeKey(id)); n > maxKeyUnits {
		return fmt.Errorf("instance ID has %d characters; want at most %d: %w", n, maxKeyUnits, provider.ErrInstanceNotFound)
	}
	return nil
}

// UnescapeKey returns the instance ID of a key that [EscapeKey] has returned. In other keys, a
// character after ^ that is no valid substitute stands for itself (KeySanitation.cs,
// UnescapePartitionKey).
func UnescapeKey(key string) string {
	if strings.IndexByte(key, '^') < 0 {
		return key
	}
	var b strings.Builder
	b.Grow(len(key))
	escaped := false
	for _, r := range key {
		if !escaped {
			if r == '^' {
				escaped = true
			} else {
				b.WriteRune(r)
			}
			continue
		}
		escaped = false
		switch {
		case r == '0':
			b.WriteByte('/')
		case r == '1':
			b.WriteByte('\\')
		case r == '2':
			b.WriteByte('#')
		case r == '3':
			b.WriteByte('?')
		case r >= controlOffset && isControl(r-controlOffset):
			b.WriteRune(r - controlOffset)
		default:
			b.WriteRune(r)
		}
	}
	if escaped {
		b.WriteByte('^')
	}
	return b.String()
}

// controlOffset is the distance between a control character and its substitute.
const controlOffset = 0xC0

func isForbiddenInKey(r rune) bool {
	switch r {
	case '^', '/', '\\', '#', '?':
		return true
	}
	return isControl(r)
}

func isControl(r rune) bool { return r <= 0x1F || 0x7F <= r && r <= 0x9F }
