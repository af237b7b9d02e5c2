package azsim

import (
	"testing"
	"time"
)

func TestSkew_ShiftsOnlyTimes(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no time", "nothing to see", "nothing to see"},
		{"JSON", `{"At":"2026-01-02T03:04:05.5Z","b":1}`, `{"At":"2026-01-02T03:05:05.5000000Z","b":1}`},
		{"with a zone", "2026-01-02T03:04:05+00:00", "2026-01-02T03:05:05.0000000Z"},
		{"without a zone", `{\"At\":\"2026-01-02T03:04:05.1\"}`, `{\"At\":\"2026-01-02T03:05:05.1000000\"}`},
		{"in another zone", "2026-01-02T03:04:05+01:00", "2026-01-02T03:04:05+01:00"},
		{"XML", "<At>Fri, 02 Jan 2026 03:04:05 GMT</At>", "<At>Fri, 02 Jan 2026 03:05:05 GMT</At>"},
		{"in a key", "20260102T030405.5000000Z_e_0", "20260102T030505.5000000Z_e_0"},
		{"two of them", "2026-01-02T03:04:05Z 2026-01-02T03:04:06Z", "2026-01-02T03:05:05.0000000Z 2026-01-02T03:05:06.0000000Z"},
		{"never", `"9999-12-31T23:59:59.9999999Z"`, `"9999-12-31T23:59:59.9999999Z"`},
		{"an ETag", `W/"datetime'2026-01-02T03%3A04%3A05.5Z'"`, `W/"datetime'2026-01-02T03%3A04%3A05.5Z'"`},
		{"no such day", "2026-02-31T03:04:05Z", "2026-02-31T03:04:05Z"},
		{"too many digits", "2026-01-02T03:04:05.12345678Z", "2026-01-02T03:04:05.12345678Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(shiftTimes([]byte(c.text), time.Minute)); got != c.want {
				t.Errorf("got %s; want %s", got, c.want)
			}
		})
	}
}

func TestSkew_ShiftsTimesInCompressedText(t *testing.T) {
	moved, ok := decompress(shiftTimes(compress([]byte(`{"At":"2026-01-02T03:04:05Z"}`)), time.Minute))
	if want := `{"At":"2026-01-02T03:05:05.0000000Z"}`; !ok || string(moved) != want {
		t.Errorf("got %s; want %s", moved, want)
	}
}
