package azsim

import (
	"bytes"
	"unicode/utf8"
)

// Noise is text that differs between runs with the same seed but has no meaning. Examples are
// generated identifiers, times, and numbers that depend on the order of goroutines.

// withoutNoise returns text with each piece of noise replaced by a tilde.
func withoutNoise(text string) string { return string(appendWithoutNoise(nil, []byte(text))) }

// appendWithoutNoise appends text to b with each piece of noise replaced by a tilde.
func appendWithoutNoise(b, text []byte) []byte {
	for i := 0; i < len(text); {
		n := 0
		switch c := text[i]; {
		case c == 'S':
			n = sequenceNumber(text[i:])
		case c == 'g' || c == 'b' || c == '0':
			n = inStack(text[i:])
		}
		if n == 0 && isHex(text[i]) && (i == 0 || !isHex(text[i-1])) {
			n = identifier(text, i)
		}
		if n > 0 {
			b = append(b, '~')
			i += n
			continue
		}
		b = append(b, text[i])
		i++
	}
	return b
}

// inStack returns the length of the noise of a stack trace at the start of text, or 0. Such noise
// is the number of a goroutine or a bubble, or an address.
func inStack(text []byte) int {
	for _, word := range []string{"goroutine ", "bubble "} {
		if rest, ok := bytes.CutPrefix(text, []byte(word)); ok {
			if n := span(rest, isDigit); n > 0 {
				return len(word) + n
			}
		}
	}
	if rest, ok := bytes.CutPrefix(text, []byte("0x")); ok && span(rest, isHex) > 0 {
		return len("0x") + span(rest, isHex)
	}
	return 0
}

// isText reports whether a body is text, such as JSON or XML.
func isText(body []byte) bool { return bytes.IndexByte(body, 0) < 0 && utf8.Valid(body) }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// span returns the number of bytes at the start of text for which kind returns true.
func span(text []byte, kind func(byte) bool) int {
	n := 0
	for n < len(text) && kind(text[n]) {
		n++
	}
	return n
}

// identifier returns the length of a GUID, a time or the random part of a blob name at text[i],
// or 0.
func identifier(text []byte, i int) int {
	rest := text[i:]
	n := span(rest, isHex)
	switch {
	case n == 32 && len(rest) > n && rest[n] == ':': // the ID of a child is not noise: it starts with the execution ID of its parent
		return 0
	case n == 32:
		return n
	case n == 8 && follows(rest[n:], 4, 4, 4, 12):
		return 36
	case n == 8 && i > 0 && text[i-1] == '-' && len(rest) > n && rest[n] == '-':
		return n
	case n == 4:
		return instantAt(rest)
	}
	return 0
}

// follows reports whether text starts with groups of hexadecimal digits of the given lengths,
// each after a hyphen.
func follows(text []byte, lengths ...int) bool {
	for _, n := range lengths {
		if len(text) < n+1 || text[0] != '-' || span(text[1:n+1], isHex) != n {
			return false
		}
		text = text[n+1:]
	}
	return len(text) == 0 || !isHex(text[0])
}

// instantAt returns the length of a time at the start of text, such as
// 2026-01-02T03:04:05.6789Z, or 0. Colons may be escaped.
func instantAt(text []byte) int {
	const shape = "0000-00-00T00:00:00"
	n := 0
	for _, want := range []byte(shape) {
		switch {
		case n >= len(text):
			return 0
		case want == '0' && isDigit(text[n]), want != '0' && text[n] == want:
			n++
		case want == ':' && len(text) > n+3 && string(text[n:n+3]) == "%3A":
			n += 3
		default:
			return 0
		}
	}
	if n < len(text) && text[n] == '.' {
		n += 1 + span(text[n+1:], isDigit)
	}
	if n < len(text) && text[n] == 'Z' {
		n++
	}
	return n
}

// sequenceNumber returns the length of SequenceNumber and its value at the start of text, or 0.
// Between them are a quote, which may be escaped, and a colon.
func sequenceNumber(text []byte) int {
	const name = "SequenceNumber"
	if len(text) < len(name) || string(text[:len(name)]) != name {
		return 0
	}
	n := len(name)
	n += span(text[n:], func(c byte) bool { return c != ':' && c != ',' && c != '}' })
	if n == len(text) || text[n] != ':' {
		return 0
	}
	return n + 1 + span(text[n+1:], isDigit)
}
