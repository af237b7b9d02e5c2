package hostile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNames_ResembleTheTrustedName(t *testing.T) {
	t.Parallel()
	for _, trusted := range []string{"localhost", "127.0.0.1", "a", "ü世", "instances"} {
		for _, names := range [][]string{Hosts(trusted), Names(trusted)} {
			begins, ends := 0, 0
			for _, n := range names {
				if n == "" || strings.EqualFold(n, trusted) || !utf8.ValidString(n) {
					t.Errorf("%q is in the list for %q", n, trusted)
				}
				if strings.HasPrefix(n, trusted) {
					begins++
				}
				if strings.HasSuffix(n, trusted) {
					ends++
				}
			}
			if begins < 5 || ends < 5 || !slices.Contains(names, "evil"+trusted) {
				t.Errorf("%d names begin with %q and %d end with it; want more: %q", begins, trusted, ends, names)
			}
		}
	}
	for _, host := range Hosts("localhost") {
		if strings.ContainsAny(host, "/@:?# ") {
			t.Errorf("%q is not a host name", host)
		}
	}
}

// recorder counts errors.
type recorder []string

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestNoneOf_ReportsEachAcceptedName(t *testing.T) {
	t.Parallel()
	names := []string{"ab", "ba"}
	for _, tt := range []struct {
		name             string
		accepts, allowed func(string) bool
		want             int
	}{
		{"an exact check", func(n string) bool { return n == "a" }, nil, 0},
		{"a check of the beginning", func(n string) bool { return strings.HasPrefix(n, "a") }, nil, 1},
		{"a check of the end", func(n string) bool { return strings.HasSuffix(n, "a") }, nil, 1},
		{"a check that accepts all", func(string) bool { return true }, nil, 2},
		{"a check that refuses all", func(string) bool { return false }, nil, 1},
		{"an allowed beginning", func(n string) bool { return strings.HasPrefix(n, "a") }, func(n string) bool { return n == "ab" }, 0},
	} {
		var r recorder
		NoneOf(&r, tt.name, "a", names, tt.accepts, tt.allowed)
		if len(r) != tt.want {
			t.Errorf("%s: %q, want %d errors", tt.name, r, tt.want)
		}
	}
}
