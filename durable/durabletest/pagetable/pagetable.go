// Package pagetable is for tests that generate tables of the documentation from the code.
package pagetable

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Check compares tables of a page with the wanted ones, given by name. A table stands between the
// lines <!-- NAME --> and <!-- end of NAME -->. If rewrite is true, Check writes the wanted tables
// into the page.
func Check(t testing.TB, page string, rewrite bool, tables map[string]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, table := range tables {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no table of %s", page, name)
		}
		want = head + begin + table + end + tail
	}
	if rewrite {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s is not current; run the package's tests with -rewrite (-want +got):\n%s", page, diff)
	}
}
