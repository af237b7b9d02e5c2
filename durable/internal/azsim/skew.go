package azsim

import (
	"bytes"
	"compress/gzip"
	"io"
	"time"
)

// shiftTimes returns text with all times in it moved by d: those of JSON and XML.
// Those in ETags, which are escaped, stay, as does what is not text, which has
// lengths and checksums.
func shiftTimes(text []byte, d time.Duration) []byte {
	if d == 0 {
		return text
	}
	if plain, ok := unpacked(text); ok {
		return packed(shiftTimes(plain, d))
	}
	if !isText(text) {
		return text
	}
	var moved []byte // text up to done; nil as long as there is nothing to move
	done := 0
	for i := 0; i < len(text); {
		n, layout := instantIn(text[i:])
		if n == 0 {
			i++
			continue
		}
		if t, err := time.Parse(layout, string(text[i:i+n])); err == nil && t.Year() >= 1902 && t.Year() <= 9998 { // others stand for never
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

// writtenAs returns the layout in which a time is written that was read in another.
func writtenAs(layout string) string {
	switch layout {
	case time.RFC1123:
		return "Mon, 02 Jan 2006 15:04:05 GMT"
	case zoneless:
		return zoneless + ".0000000"
	case compact:
		return compact
	}
	return ticks
}

// zoneless is how times are written whose zone was lost, as those are by which
// entities order what they are told. They are in UTC all the same.
const zoneless = "2006-01-02T15:04:05"

// compact is how times are written in the keys of rows.
const compact = "20060102T150405.0000000Z"

// instantIn returns the length and the layout of the time that text begins with,
// 0 if it does not begin with one.
func instantIn(text []byte) (n int, layout string) {
	const rfc1123 = len("Mon, 02 Jan 2006 15:04:05 GMT")
	switch {
	case len(text) >= rfc1123 && text[3] == ',' && bytes.HasSuffix(text[:rfc1123], []byte(" GMT")):
		return rfc1123, time.RFC1123
	case shaped(text, "00000000T000000.0000000Z"):
		return len(compact), compact
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

// shaped reports whether text begins with a digit where shape has 0, and with
// what shape has elsewhere.
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

// unpacked returns what is compressed in body; ok is false if nothing is.
func unpacked(body []byte) (text []byte, ok bool) {
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

func packed(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text) // never fails, into memory
	_ = w.Close()
	return b.Bytes()
}
