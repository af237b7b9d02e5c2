package httpcall_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
)

func TestText_DecodesByCharsetAndByteOrderMark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body, contentType, want string
		exact                         bool
	}{
		{"nothing", "", "", "", true},
		{"UTF-8 by default", "é😀", "application/json", "é😀", true},
		{"UTF-8 by name", "é", `text/plain; charset="UTF-8"`, "é", true},
		{"UTF-8 with a mark", "\xEF\xBB\xBFé", "", "é", true},
		{"no UTF-8", "a\xFF\xFEb", "", "a\uFFFDb", false},
		{"an image", "\x89PNG\r\n", "image/png", "\uFFFDPNG\r\n", false},
		{"ASCII", "abc", "text/plain; charset=us-ascii", "abc", true},
		{"Latin-1", "caf\xE9", "text/plain; charset=ISO-8859-1", "café", true},
		{"UTF-16 by name", "a\x00\x3D\xD8\x00\xDE", "text/plain; charset=utf-16", "a😀", true},
		{"UTF-16, big, by name", "\x00a", "text/plain; charset=utf-16be", "a", true},
		{"UTF-16 by its mark", "\xFF\xFEa\x00", "", "a", true},
		{"UTF-16, big, by its mark", "\xFE\xFF\x00a", "", "a", true},
		{"UTF-16 by name, big by its mark", "\xFE\xFF\x00a", "text/plain; charset=utf-16", "a", true},
		{"half a UTF-16 unit", "a\x00b", "text/plain; charset=utf-16le", "a", false},
		{"half a surrogate pair", "\x3D\xD8a\x00", "text/plain; charset=utf-16le", "\uFFFDa", false},
		{"an unknown charset with ASCII in it", "abc", "text/plain; charset=shift_jis", "abc", true},
		{"an unknown charset", "\x82\xA0", "text/plain; charset=shift_jis", "\uFFFD", false},
		{"an unknown charset that looks like UTF-8", "é", "text/plain; charset=shift_jis", "é", false},
		{"a content type that is none", "é", "; charset", "é", true},
	} {
		text, exact := httpcall.Text([]byte(c.body), c.contentType)
		if text != c.want || exact != c.exact {
			t.Errorf("%s: %q, %t; want %q, %t", c.name, text, exact, c.want, c.exact)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, charset := range []string{"", "utf-8", "utf-16", "utf-16be", "latin1", "x"} {
		f.Add([]byte("\xFF\xFEa\x00\xD8"), "text/plain; charset="+charset)
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		text, exact := httpcall.Text(body, contentType)
		if !utf8.ValidString(text) {
			t.Errorf("%q is not valid text", text)
		}
		if again, ok := httpcall.Text([]byte(text), ""); exact && !strings.HasPrefix(text, "\uFEFF") && (again != text || !ok) {
			t.Errorf("%q became %q when it was decoded again", text, again)
		}
	})
}
