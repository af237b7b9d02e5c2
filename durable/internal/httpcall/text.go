package httpcall

import (
	"bytes"
	"encoding/binary"
	"mime"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Byte order marks.
var (
	utf8Mark    = []byte{0xEF, 0xBB, 0xBF}
	utf16Little = []byte{0xFF, 0xFE}
	utf16Big    = []byte{0xFE, 0xFF}
)

// Text decodes a body by the charset of its content type or its byte order mark; the default is
// UTF-8. It supports the charsets of every .NET that services still use. exact is false if the
// body is not valid text; invalid bytes become U+FFFD.
func Text(body []byte, contentType string) (text string, exact bool) {
	switch charset(contentType) {
	case "", "utf-8", "us-ascii":
		switch {
		case bytes.HasPrefix(body, utf8Mark):
			body = body[len(utf8Mark):]
		case bytes.HasPrefix(body, utf16Little):
			return fromUTF16(body[2:], binary.LittleEndian)
		case bytes.HasPrefix(body, utf16Big):
			return fromUTF16(body[2:], binary.BigEndian)
		}
	case "utf-16", "utf-16le":
		if bytes.HasPrefix(body, utf16Big) {
			return fromUTF16(body[2:], binary.BigEndian)
		}
		return fromUTF16(bytes.TrimPrefix(body, utf16Little), binary.LittleEndian)
	case "utf-16be":
		return fromUTF16(bytes.TrimPrefix(body, utf16Big), binary.BigEndian)
	case "iso-8859-1", "latin1":
		return fromLatin1(body), true
	default:
		if bytes.ContainsFunc(body, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return strings.ToValidUTF8(string(body), "\uFFFD"), false
		}
	}
	if !utf8.Valid(body) {
		return strings.ToValidUTF8(string(body), "\uFFFD"), false
	}
	return string(body), true
}

// charset returns the charset of a content type in lower case, or "".
func charset(contentType string) string {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.Trim(params["charset"], `"' `))
}

func fromLatin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

func fromUTF16(b []byte, order binary.ByteOrder) (text string, exact bool) {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	runes := utf16.Decode(units)
	text = string(runes)
	// An unpaired surrogate and an odd last byte are lost.
	back := utf16.Encode(runes)
	exact = len(b)%2 == 0 && len(back) == len(units)
	for i := 0; exact && i < len(units); i++ {
		exact = back[i] == units[i]
	}
	return text, exact
}
