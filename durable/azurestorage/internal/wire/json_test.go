package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// Newtonsoft.Json/Utilities/JavaScriptUtils.cs with StringEscapeHandling.Default.
func TestJSONStrings_AreEscapedAsByNewtonsoft(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", `""`},
		{"plain", `"plain"`},
		{`a"b\c`, `"a\"b\\c"`},
		{"\b\t\n\f\r", `"\b\t\n\f\r"`},
		{"\x00\x01\x1f", `"\u0000\u0001\u001f"`},
		{"\x7f\u0080", "\"\x7f\u0080\""},
		{"\u0084\u0085\u0086", "\"\u0084\\u0085\u0086\""},
		{"\u2027\u2028\u2029\u202a", "\"\u2027\\u2028\\u2029\u202a\""},
		{"/<>&'", `"/<>&'"`},
		{"é日😀", `"é日😀"`},
		{"\ufffd\ufffe\uffff", "\"\ufffd\\ufffe\\uffff\""}, // unlike Newtonsoft.Json, the last two are escaped: XML cannot contain them
		{"a\xffb\xc3", "\"a\ufffdb\ufffd\""},
	} {
		if got := string(appendJSONString(nil, c.in)); got != c.want {
			t.Errorf("of %q: %s, want %s", c.in, got, c.want)
		}
	}
}

func FuzzJSONString_IsReadBack(f *testing.F) {
	for _, s := range []string{"", "\x00", "\u0085\u2028", `"\`, "😀", "\xff", "\ufffe"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := appendJSONString(nil, s)
		if !utf8.Valid(text) {
			t.Errorf("of %q: not UTF-8: %q", s, text)
		}
		var got string
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("of %q: %v in %s", s, err, text)
		}
		if want := string([]rune(s)); got != want {
			t.Errorf("of %q: read back as %q", s, got)
		}
	})
}

func TestTimes_AreWrittenAsByNewtonsoft(t *testing.T) {
	paris := time.FixedZone("", 3600)
	for _, c := range []struct {
		name string
		at   time.Time
		want string
	}{
		{"seven decimals", time.Date(2026, 11, 20, 18, 32, 28, 618124400, time.UTC), "2026-11-20T18:32:28.6181244Z"},
		{"trailing zeros are omitted", time.Date(2026, 11, 20, 18, 32, 36, 820084000, time.UTC), "2026-11-20T18:32:36.820084Z"},
		{"no decimals", time.Date(2026, 11, 20, 18, 32, 5, 0, time.UTC), "2026-11-20T18:32:05Z"},
		{"fractions of 100 ns are truncated", time.Date(2026, 11, 20, 18, 32, 5, 199, time.UTC), "2026-11-20T18:32:05.0000001Z"},
		{"in UTC", time.Date(2026, 11, 20, 18, 32, 5, 0, paris), "2026-11-20T17:32:05Z"},
		{"DateTime.MinValue", time.Time{}, "0001-01-01T00:00:00"},
	} {
		got := string(appendTime(nil, c.at))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		back, err := eventjson.ParseTime(got)
		if err != nil || !back.Equal(c.at.Truncate(100)) || back.Location() != time.UTC {
			t.Errorf("%s: read back as %v, %v", c.name, back, err)
		}
	}
}

func TestTimes_WithoutAZoneAreUTC(t *testing.T) {
	want := time.Date(2026, 11, 20, 18, 34, 38, 991661300, time.UTC)
	for _, s := range []string{
		"2026-11-20T18:34:38.9916613", "2026-11-20T18:34:38.9916613Z", "2026-11-20T19:34:38.9916613+01:00", "2026-11-20T13:34:38.9916613-05:00",
	} {
		if got, err := eventjson.ParseTime(s); err != nil || !got.Equal(want) {
			t.Errorf("ParseTime(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for s, want := range map[string]time.Time{
		"0001-01-01T00:00:00+01:00":   {},
		"9999-12-31T23:59:59.5-01:00": time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC),
	} {
		if got, err := eventjson.ParseTime(s); err != nil || !got.Equal(want) {
			t.Errorf("ParseTime(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "T", "yesterday", "2026-11-20", "2026-13-20T00:00:00Z"} {
		if got, err := eventjson.ParseTime(s); err == nil || !strings.Contains(err.Error(), "parse time") {
			t.Errorf("ParseTime(%q) = %v, %v, want an error that says so", s, got, err)
		}
	}
}

// Azure.Data.Tables writes exactly seven decimals.
func TestTableTimes_HaveSevenDecimalsAndAreValidInTables(t *testing.T) {
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 11, 20, 18, 32, 5, 0, time.UTC), "2026-11-20T18:32:05.0000000Z"},
		{time.Date(2026, 11, 20, 18, 32, 5, 120000099, time.FixedZone("", -3600)), "2026-11-20T19:32:05.1200000Z"},
		{time.Time{}, "1601-01-01T00:00:00.0000000Z"},
	} {
		if got := formatEDMTime(c.at); got != c.want {
			t.Errorf("%v: %s, want %s", c.at, got, c.want)
		}
	}
}
