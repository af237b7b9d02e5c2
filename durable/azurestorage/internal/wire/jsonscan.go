package wire

import (
	"bytes"
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// scanText returns the string that starts at offset i, without its quotes, and the offset after it.
// next is -1 without a valid string at i.
func scanText(raw []byte, i int) (text []byte, next int) {
	if i >= len(raw) || raw[i] != '"' {
		return nil, -1
	}
	i++
	for from := i; ; {
		n := bytes.IndexByte(raw[from:], '"')
		if n < 0 {
			return nil, -1
		}
		end := from + n
		// An odd number of backslashes before a quote escapes the quote.
		slashes := 0
		for end-slashes > i && raw[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return raw[i:end], end + 1
		}
		from = end + 1
	}
}

// scanInt reads an integer with at most nine digits.
func scanInt(raw []byte, i int, to *int) int {
	negative := i < len(raw) && raw[i] == '-'
	if negative {
		i++
	}
	n, first := 0, i
	for i < len(raw) && raw[i]-'0' <= 9 {
		n = n*10 + int(raw[i]-'0')
		i++
	}
	if i == first || i-first > 9 || raw[first] == '0' && i-first > 1 {
		return -1
	}
	if negative {
		n = -n
	}
	*to = n
	return i
}

// scanBool reads true or false.
func scanBool(raw []byte, i int, to *bool) int {
	switch {
	case bytes.HasPrefix(raw[i:], []byte("false")):
		return i + len("false")
	case bytes.HasPrefix(raw[i:], []byte("true")):
		*to = true
		return i + len("true")
	}
	return -1
}

// scanTime parses a time in UTC, with or without decimals, in the format of table services and .NET:
// 2026-11-20T18:34:03.0414474Z.
func scanTime(b []byte) (t time.Time, ok bool) {
	if len(b) < len("2026-11-20T18:34:03Z") || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[len(b)-1] != 'Z' {
		return time.Time{}, false
	}
	var field [7]int // year, month, day, hour, minute, second, 100 ns
	for f, at := range [...][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}} {
		for _, c := range b[at[0]:at[1]] {
			if c-'0' > 9 {
				return time.Time{}, false
			}
			field[f] = field[f]*10 + int(c-'0')
		}
	}
	if decimals := b[19 : len(b)-1]; len(decimals) > 0 {
		if decimals[0] != '.' || len(decimals) == 1 || len(decimals) > 8 {
			return time.Time{}, false
		}
		for i := 1; i <= 7; i++ {
			field[6] *= 10
			if i < len(decimals) {
				if decimals[i]-'0' > 9 {
					return time.Time{}, false
				}
				field[6] += int(decimals[i] - '0')
			}
		}
	}
	year, month, day := field[0], field[1], field[2]
	if year < 1 || month < 1 || month > 12 || day < 1 || day > 28 && day > daysIn(year, month) || field[3] > 23 || field[4] > 59 || field[5] > 59 {
		return time.Time{}, false
	}
	seconds := ((daysSinceEpoch(year, month, day)*24+field[3])*60+field[4])*60 + field[5]
	return time.Unix(int64(seconds), int64(field[6])*100).UTC(), true
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysSinceEpoch returns the number of days from 1 January 1970 to a Gregorian date. Internally, years
// start in March, so that a leap day is the last day of a year.
func daysSinceEpoch(year, month, day int) int {
	if month < 3 {
		year--
		month += 12
	}
	const daysToEpoch = 719468 // from 1 March of the year 0
	return 365*year + year/4 - year/100 + year/400 + (153*(month-3)+2)/5 + day - 1 - daysToEpoch
}

// unquoteJSON appends the unescaped text between two quotes to out. It rejects escaped surrogates,
// which encoding/json then decodes.
func unquoteJSON(out, quoted []byte) (text []byte, ok bool) {
	for {
		n := bytes.IndexByte(quoted, '\\')
		if n < 0 {
			return append(out, quoted...), true
		}
		out = append(out, quoted[:n]...)
		if n+1 >= len(quoted) {
			return out, false
		}
		c := quoted[n+1]
		quoted = quoted[n+2:]
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hexRune(quoted)
			if !ok || r >= 0xD800 && r <= 0xDFFF {
				return out, false
			}
			out = utf8.AppendRune(out, r)
			quoted = quoted[4:]
		default:
			return out, false
		}
	}
}

// hasQuotesOnly reports whether a JSON string has no escapes except escaped quotes.
func hasQuotesOnly(quoted []byte) bool {
	for {
		n := bytes.IndexByte(quoted, '\\')
		if n < 0 {
			return true
		}
		if n+1 >= len(quoted) || quoted[n+1] != '"' {
			return false
		}
		quoted = quoted[n+2:]
	}
}

// isPlainJSON reports whether raw is UTF-8 without control characters, which JSON allows only between
// tokens. It reads eight bytes at a time.
func isPlainJSON(raw []byte) bool {
	const spaces, highs = 0x2020202020202020, 0x8080808080808080
	var control, high uint64
	rest := raw
	for ; len(rest) >= 32; rest = rest[32:] {
		a, b := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		c, d := binary.LittleEndian.Uint64(rest[16:]), binary.LittleEndian.Uint64(rest[24:])
		high |= a | b | c | d
		control |= (a-spaces)&^a | (b-spaces)&^b | (c-spaces)&^c | (d-spaces)&^d
	}
	if control&highs != 0 {
		return false
	}
	for _, c := range rest {
		if c < ' ' {
			return false
		}
		high |= uint64(c)
	}
	return high&highs == 0 || utf8.Valid(raw)
}

// hexRune parses four hexadecimal digits.
func hexRune(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
