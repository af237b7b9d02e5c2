package jsonc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/internal/jsonc"
)

func TestPlain_LeavesJSONInItsPlaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\xef\xbb\xbf{}":                   "{}",
		"// a\n{}":                         "    \n{}",
		"{\"a\": 1, /* b\n */ }":           "{\"a\": 1      \n    }",
		"{\"a\": \"// no\", \"b\": [1,],}": "{\"a\": \"// no\", \"b\": [1 ] }",
		`{"a": "\"/* no */"}`:              `{"a": "\"/* no */"}`,
		"{} // to the end":                 "{}              ",
		"{\"a\": 1 /* never closed":        "{\"a\": 1                ",
		`{"a": "never closed`:              `{"a": "never closed`,
		"[1 / 2]":                          "[1 / 2]",
		"[1,\n// comment\n]":               "[1 \n          \n]",
	} {
		if got := string(jsonc.Plain([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	for _, seed := range []string{`{"a": [1, 2,], // x` + "\n}", `"\\"`, "/*", "\xef\xbb\xbf[,]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		plain := jsonc.Plain(text)
		if got, want := strings.Count(string(plain), "\n"), strings.Count(string(text), "\n"); got != want {
			t.Errorf("%d line breaks, want %d", got, want)
		}
		if json.Valid(text) && string(plain) != string(text) {
			t.Errorf("valid JSON %q became %q", text, plain)
		}
	})
}
