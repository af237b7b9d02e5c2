package wire

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// EscapeKey makes an instance ID fit for a partition key, which may hold
// neither / \ # ? nor control characters. Such a character becomes ^ and one
// that stands for it; ^ itself is doubled
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

// maxKeyUnits is how many UTF-16 code units a key may have: 1 KiB.
const maxKeyUnits = 512

// CheckID returns an error for an instance ID that no row can have.
func CheckID(id string) error {
	if n := utf16Length(EscapeKey(id)); n > maxKeyUnits {
		return fmt.Errorf("an instance ID of %d characters; want at most %d: %w", n, maxKeyUnits, provider.ErrInstanceNotFound)
	}
	return nil
}

// UnescapeKey returns the instance ID that [EscapeKey] made key from. After a ^, what
// EscapeKey cannot have written stands for itself (KeySanitation.cs,
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

// controlOffset moves control characters to where keys allow them.
const controlOffset = 0xC0

func isForbiddenInKey(r rune) bool {
	switch r {
	case '^', '/', '\\', '#', '?':
		return true
	}
	return isControl(r)
}

func isControl(r rune) bool { return r <= 0x1F || 0x7F <= r && r <= 0x9F }
