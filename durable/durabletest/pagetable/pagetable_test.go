package pagetable

import (
	"os"
	"path/filepath"
	"testing"
)

// recorder is a test that records whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestCheck_ReportsADifferenceUntilItIsWritten(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# Page\n<!-- a -->\nold\n<!-- end of a -->\n<!-- b -->\n<!-- end of b -->\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tables := map[string]string{"a": "new\n", "b": "row\n"}
	for _, step := range []struct{ rewrite, fails bool }{{false, true}, {true, false}, {false, false}} {
		r := &recorder{TB: t}
		Check(r, page, step.rewrite, tables)
		if r.failed != step.fails {
			t.Errorf("rewrite %v: failed %v, want %v", step.rewrite, r.failed, step.fails)
		}
	}
	want := "# Page\n<!-- a -->\nnew\n<!-- end of a -->\n<!-- b -->\nrow\n<!-- end of b -->\nend\n"
	if got, _ := os.ReadFile(page); string(got) != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}
