package settings

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asText lists settings as text, for comparison.
func asText(s Settings) map[string]string {
	out := map[string]string{}
	for _, v := range s.byPath {
		out[v.path] = v.literal() + " @ " + v.Source
	}
	return out
}

func TestParseHostJSON_AcceptsCommentsTrailingCommasAndByteOrderMark(t *testing.T) {
	t.Parallel()
	got, err := ParseHostJSON([]byte("\xef\xbb\xbf" + `// first
{
  "version": "2.0", /* two
  lines */ "extensions": {
    "durableTask": {
      "hubName": "has // no comment, and no \" end",
      "on": true, // yes
      "list": [1, 2.50, null,],
    },
  },
}
// last`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"version":                        `"2.0" @ host.json line 3`,
		"extensions":                     "an object @ host.json line 4",
		"extensions.durableTask":         "an object @ host.json line 5",
		"extensions.durableTask.hubName": `"has // no comment, and no \" end" @ host.json line 6`,
		"extensions.durableTask.on":      "true @ host.json line 7",
		"extensions.durableTask.list":    "an array @ host.json line 8",
		"extensions.durableTask.list.0":  "1 @ host.json line 8",
		"extensions.durableTask.list.1":  "2.50 @ host.json line 8",
		"extensions.durableTask.list.2":  "null @ host.json line 8",
	}
	if diff := cmp.Diff(asText(got), want); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
}

func TestParseHostJSON_NamesTheLineOfASyntaxError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"a missing comma", "{\n\"a\": 1\n\"b\": 2}", "host.json line 3: invalid character '\"' after object key:value pair"},
		{"an unquoted name", "{\n\n a: 1}", "host.json line 3: invalid character 'a'"},
		{"an early end", "{\n\"a\": {\n", "host.json line 3: the file ends before the end of its object"},
		{"nothing at all", "", "host.json line 1: the file ends before the end of its object"},
		{"a comment that is not closed", "/* {} ", "host.json line 1: invalid character '/' looking for beginning of value"},
		{"an array", "[]", "host.json line 1: want an object, found an array"},
		{"text after the end", "{}\n{}", "there is text after the object"},
		{"not UTF-8", "{\"a\": \"\xff\"}", "host.json is not UTF-8 text"},
		{"much too deep", strings.Repeat(`{"a":`, 100), "is nested more than 64 deep"},
	} {
		_, err := ParseHostJSON([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error is %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestParseHostJSON_LastOfTwoSpellingsCounts(t *testing.T) {
	t.Parallel()
	s, err := ParseHostJSON([]byte(`{"a": {"x": 1, "y": 2}, "A": {"X": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "an object @ host.json line 1", "A.X": "3 @ host.json line 1"}
	if diff := cmp.Diff(asText(s), want); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
}

func TestOverride_ReplacesSettingsInAnySpelling(t *testing.T) {
	t.Parallel()
	const hubPath, storagePath = DurableTaskPath + ".hubName", DurableTaskPath + ".storageProvider"
	s, err := ParseHostJSON([]byte(`{"extensions": {"durableTask": {"hubName": "FromFile", "storageProvider": {"partitionCount": 3}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s.Override([]string{
		"AzureFunctionsJobHost__extensions__durableTask__storageProvider__partitionCount=5",
		"AZUREFUNCTIONSJOBHOST__EXTENSIONS__DURABLETASK__HUBNAME=FromEnvironment",
		"azurefunctionsjobhost:extensions:durableTask:maxConcurrentActivityFunctions=7",
		"AzureFunctionsJobHost__extensions__durableTask__storageProvider=ignored",
		"AzureFunctionsJobHost__extensions__durableTask__extendedSessionsEnabled=",
		"AzureFunctionsJobHost__=x",
		"PATH=/bin",
	})
	got := map[string]string{}
	for _, path := range []string{
		hubPath, storagePath, storagePath + ".partitionCount",
		DurableTaskPath + ".maxConcurrentActivityFunctions", DurableTaskPath + ".extendedSessionsEnabled",
	} {
		if v, ok := s.Lookup(path); ok {
			got[path] = v.literal() + " @ " + v.Source
		}
	}
	want := map[string]string{
		hubPath:                         `"FromEnvironment" @ environment variable AZUREFUNCTIONSJOBHOST__EXTENSIONS__DURABLETASK__HUBNAME`,
		storagePath:                     "an object @ host.json line 1",
		storagePath + ".partitionCount": `"5" @ environment variable AzureFunctionsJobHost__extensions__durableTask__storageProvider__partitionCount`,
		DurableTaskPath + ".maxConcurrentActivityFunctions": `"7" @ environment variable azurefunctionsjobhost:extensions:durableTask:maxConcurrentActivityFunctions`,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
}

func FuzzParseHostJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,],}`, `{/**/"a":"//"}`, `{"A":1,"a":{"b":2}}`, "{\"a\"://x\n1}", `{"":{"":""}}`, `{"a.b":{"c":1}}`, "\xef\xbb\xbf{}", "/", `"\`,
		`{"version":"2.0","extensions":{"durableTask":{"hubName":"%X%","storageProvider":{"partitionCount":99}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := ParseHostJSON(text)
		if err != nil && len(found.byPath) > 0 {
			t.Errorf("an error and %d settings", len(found.byPath))
		}
	})
}

func TestFindAppRoot_LooksUpwardsForHostJSON(t *testing.T) {
	root := t.TempDir()
	deep := root + "/a/b"
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/host.json", []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	got := FindAppRoot("", "")
	if !sameFile(t, got, root) {
		t.Errorf("root is %s, want %s", got, root)
	}
	if got := FindAppRoot("", "/named"); got != "/named" {
		t.Errorf("root is %s, want /named", got)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

// Line numbers in errors, and the edits of -write-functions in host.json, depend on these offsets.
func TestPlainJSON_KeepsOffsetsAndLines(t *testing.T) {
	for text, want := range map[string]string{
		"\xef\xbb\xbf{}":                   "{}",
		"// a\n{}":                         "    \n{}",
		"{\"a\": 1, /* b\n */ }":           "{\"a\": 1      \n    }",
		"{\"a\": \"// no\", \"b\": [1,],}": "{\"a\": \"// no\", \"b\": [1 ] }",
		`{"a": "\"/* no */"}`:              `{"a": "\"/* no */"}`,
		"{} // to the end":                 "{}              ",
		`{"a": "never closed`:              `{"a": "never closed`,
		"[1 / 2]":                          "[1 / 2]",
		"[1,\n// comment\n]":               "[1 \n          \n]",
	} {
		if got := string(PlainJSON([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
