package wire

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// DurableTask.AzureStorage/Tracking/KeySanitation.cs, EscapePartitionKey.
func TestEscapeKey_ReplacesForbiddenCharacters(t *testing.T) {
	for _, c := range []struct{ id, key string }{
		{"", ""},
		{"abc", "abc"},
		{"a/b", "a^0b"},
		{`C:\x#1?`, "C:^1x^21^3"},
		{"2^10", "2^^10"},
		{"\t", "^É"},
		{"\x7f", "^Ŀ"},
		{"\u0080", "^\u0140"},
		{"\u009f", "^\u015f"},
		{"\u00a0", "\u00a0"},
		{`a/b\c#d?e^f` + "\x01", "a^0b^1c^2d^3e^^f^Á"},
		{"@counter@k1", "@counter@k1"},
		{"%'+ é日😀", "%'+ é日😀"},
		{"^0", "^^0"},
	} {
		if got := EscapeKey(c.id); got != c.key {
			t.Errorf("escapeKey(%q) = %q, want %q", c.id, got, c.key)
		}
		if got := UnescapeKey(c.key); got != c.id {
			t.Errorf("unescapeKey(%q) = %q, want %q", c.key, got, c.id)
		}
	}
}

func TestUnescapeKey_KeepsUnescapedText(t *testing.T) {
	for key, want := range map[string]string{"a^b": "ab", "a^": "a^", "^~": "~", "^\u00e0": "\u00e0", "^😀": "😀"} {
		if got := UnescapeKey(key); got != want {
			t.Errorf("unescapeKey(%q) = %q, want %q", key, got, want)
		}
	}
}

func FuzzEscapeKey_CanBeUndone(f *testing.F) {
	for _, id := range []string{"", "abc", "a/b", `\#?^`, "\x00\x1f\x7f\u0080\u009f", "é^É", "😀"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		key := EscapeKey(id)
		if i := strings.IndexAny(key, "/\\#?"); i >= 0 {
			t.Errorf("EscapeKey(%q) = %q contains %q", id, key, key[i])
		}
		for _, r := range key {
			if r <= 0x1F || 0x7F <= r && r <= 0x9F {
				t.Errorf("EscapeKey(%q) = %q contains a control character", id, key)
			}
		}
		if got := UnescapeKey(key); got != id && utf8.ValidString(id) {
			t.Errorf("unescapeKey(escapeKey(%q)) = %q", id, got)
		}
		UnescapeKey(id) // must not panic for any text
	})
}
