package eventjson

import (
	"time"
	"unicode/utf8"
)

// AppendTime appends t as Newtonsoft.Json writes a DateTime: in UTC, with up to 7 decimals and
// without trailing zeros. The zero time is DateTime.MinValue, which has no zone.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "0001-01-01T00:00:00"...)
	}
	// The layout truncates to 100 ns, the resolution of .NET.
	return t.UTC().AppendFormat(b, "2006-01-02T15:04:05.9999999Z")
}

const hexDigits = "0123456789abcdef"

// AppendString appends s in quotes. It escapes the same characters as Newtonsoft.Json
// (Newtonsoft.Json/Utilities/JavaScriptUtils.cs, WriteEscapedJavaScriptString), and U+FFFE and
// U+FFFF, which are invalid in the XML around a queue message. Bytes that are not UTF-8 become
// U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscapedByte(b, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, s[start:i]...)
			b = append(b, "\uFFFD"...)
		case r == 0x85, r == 0x2028, r == 0x2029, r == 0xFFFE, r == 0xFFFF:
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		default:
			i += size
			continue
		}
		i += size
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func appendEscapedByte(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\t':
		return append(b, '\\', 't')
	case '\n':
		return append(b, '\\', 'n')
	case '\f':
		return append(b, '\\', 'f')
	case '\r':
		return append(b, '\\', 'r')
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
