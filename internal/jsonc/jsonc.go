// Package jsonc reads JSON with comments, the form that host.json and
// local.settings.json may have: Newtonsoft's reader, which the Functions host
// and its tools use, accepts comments and trailing commas.
package jsonc

import (
	"bytes"
	"strings"
)

// Plain returns text with a byte order mark removed, and with comments and
// trailing commas replaced by blanks, so that lines, and offsets behind the
// mark, stay what they were.
func Plain(text []byte) []byte {
	out := bytes.Clone(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	comma := -1 // a comma that nothing but blanks has followed
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end := commentEnd(out, i)
			for ; i < end; i++ {
				if out[i] != '\n' && out[i] != '\r' {
					out[i] = ' '
				}
			}
			i--
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case !strings.ContainsRune(" \t\r\n", rune(c)):
			comma = -1
		}
	}
	return out
}

// commentEnd returns the index after the comment that begins at i. One that is
// not closed goes on to the end.
func commentEnd(text []byte, i int) int {
	mark, skip := "\n", 0
	if text[i+1] == '*' {
		mark, skip = "*/", 2
	}
	n := bytes.Index(text[i+2:], []byte(mark))
	if n < 0 {
		return len(text)
	}
	return i + 2 + n + skip
}
