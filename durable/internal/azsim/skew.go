package azsim

import (
	"bytes"
	"compress/gzip"
	"io"
	"time"
)

// shiftTimes returns text with all times in JSON or XML shifted by d. Times in ETags, which are
// escaped, stay unchanged. So does a body that is not text, because it may contain lengths and
// checksums.
func shiftTimes(text []byte, d time.Duration) []byte {
	if d == 0 {
		return text
	}
	if plain, ok := decompress(text); ok {
		return compress(shiftTimes(plain, d))
	}
	if !isText(text) {
		return text
	}
	var moved []byte // the text up to done; nil until a time is shifted
	done := 0
	for i := 0; i < len(text); {
		n, layout := instantIn(text[i:])
		if n == 0 {
			i++
			continue
		}
		if t, err := time.Parse(layout, string(text[i:i+n])); err == nil && t.Year() >= 1902 && t.Year() <= 9998 { // others mean never
			moved = append(moved, text[done:i]...)
			moved = t.Add(d).UTC().AppendFormat(moved, writtenAs(layout))
			done = i + n
		}
		i += n
	}
	if done == 0 {
		return text
	}
	return append(moved, text[done:]...)
}

// writtenAs returns the layout that formats a time parsed with the given layout.
func writtenAs(layout string) string {
	switch layout {
	case time.RFC1123:
		return "Mon, 02 Jan 2006 15:04:05 GMT"
	case zoneless:
		return zoneless + ".0000000"
	case compactTime:
		return compactTime
	}
	return ticks
}

// zoneless is the layout of times without a zone. Entities order messages by such times. They are
// in UTC.
const zoneless = "2006-01-02T15:04:05"

// compactTime is the layout of times in row keys.
const compactTime = "20060102T150405.0000000Z"

// instantIn returns the length and the layout of the time at the start of text, or 0.
func instantIn(text []byte) (n int, layout string) {
	const rfc1123 = len("Mon, 02 Jan 2006 15:04:05 GMT")
	switch {
	case len(text) >= rfc1123 && text[3] == ',' && bytes.HasSuffix(text[:rfc1123], []byte(" GMT")):
		return rfc1123, time.RFC1123
	case shaped(text, "00000000T000000.0000000Z"):
		return len(compactTime), compactTime
	case !shaped(text, "0000-00-00T00:00:00"):
		return 0, ""
	}
	n = len("2006-01-02T15:04:05")
	if text[n] == '.' {
		digits := span(text[n+1:], isDigit)
		if digits == 0 || digits > 7 {
			return 0, ""
		}
		n += 1 + digits
	}
	for _, zone := range []string{"Z", "+00:00"} {
		if bytes.HasPrefix(text[n:], []byte(zone)) {
			return n + len(zone), time.RFC3339Nano
		}
	}
	if n == len(text) || bytes.IndexByte([]byte("+-:."), text[n]) >= 0 || isDigit(text[n]) {
		return 0, ""
	}
	return n, zoneless
}

// shaped reports whether text starts like shape, with any digit in place of each 0.
func shaped(text []byte, shape string) bool {
	if len(text) < len(shape) {
		return false
	}
	for i := range len(shape) {
		if shape[i] == '0' && !isDigit(text[i]) || shape[i] != '0' && text[i] != shape[i] {
			return false
		}
	}
	return true
}

// decompress decompresses body; ok is false for other bodies.
func decompress(body []byte) (text []byte, ok bool) {
	if !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		return nil, false
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	text, err = io.ReadAll(r)
	return text, err == nil
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text) // cannot fail in memory
	_ = w.Close()
	return b.Bytes()
}
