package hubcli

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// verbsPage is the page of the documentation with all verbs and flags.
const verbsPage = "../../../durable/docs/reference-cli.md"

func TestVerbs_ThePageHasARowForEach(t *testing.T) {
	page, err := os.ReadFile(verbsPage)
	if err != nil {
		t.Fatal(err)
	}
	want := withTable(t, string(page), "verbs", verbsTable())
	want = withTable(t, want, "flags", flagsTable())
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(verbsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("run `go test ./handler/internal/hubcli -rewrite` (-want +got):\n%s", diff)
	}
}

// withTable returns a page with another table of the given name.
func withTable(t *testing.T, page, name, table string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	head, rest, ok := strings.Cut(page, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table of %s", verbsPage, name)
	}
	return head + begin + table + end + tail
}

func verbsTable() string {
	table := "| Verb | Description |\n|---|---|\n"
	for _, v := range verbs {
		more := strings.ReplaceAll(v.more, "\n", " ")
		table += fmt.Sprintf("| `%s` | %s |\n", strings.Join(append([]string{v.name}, v.args...), " "), strings.TrimSpace(v.does+". "+more))
	}
	return table
}

// flagsTable has a row for each flag, with the verbs that have it. A flag with different
// descriptions has several rows.
func flagsTable() string {
	with := map[string][]string{} // the verbs by the first cells of a row
	for _, v := range verbs {
		newFlags(v).set.VisitAll(func(one *flag.Flag) {
			if one.Usage == "" {
				return // an older name of another flag
			}
			value, does := flag.UnquoteUsage(one)
			row := fmt.Sprintf("| `%s` | %s |", strings.TrimRight("--"+one.Name+" "+value, " "), strings.ReplaceAll(does, "|", "\\|"))
			with[row] = append(with[row], v.name)
		})
	}
	table := "| Flag | Description | Verbs |\n|---|---|---|\n"
	for _, row := range slices.Sorted(maps.Keys(with)) {
		names := "all"
		if len(with[row]) < len(verbs) {
			names = "`" + strings.Join(with[row], "`, `") + "`"
		}
		table += row + " " + names + " |\n"
	}
	return table
}
