package management

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

var rewrite = flag.Bool("rewrite", false, "write the tables of routes and parameters into the page of the documentation")

// routesPage is the page of the documentation with all routes.
const routesPage = "../../../durable/docs/reference-http.md"

func TestRoutes_ThePageHasARowForEach(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(routesPage)
	if err != nil {
		t.Fatal(err)
	}
	want := withTable(t, string(page), "routes", routesTable())
	want = withTable(t, want, "parameters", parametersTable())
	if *rewrite {
		if err := os.WriteFile(routesPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("run `go test ./handler/internal/management -rewrite` (-want +got):\n%s", diff)
	}
}

// withTable returns a page with another table of the given name.
func withTable(t *testing.T, page, name, table string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	head, rest, ok := strings.Cut(page, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table of %s", routesPage, name)
	}
	return head + begin + table + end + tail
}

func routesTable() string {
	table := "| Request | Description | Parameters | Answers |\n|---|---|---|---|\n"
	for _, r := range Routes() {
		var parameters, answers []string
		for _, name := range r.Query {
			parameters = append(parameters, "`"+name+"`")
		}
		for _, a := range r.Answers {
			if a == badRequest400 {
				continue // any route may return it
			}
			answers = append(answers, fmt.Sprintf("%d: %s", a.Status, a.says))
		}
		summary := r.summary
		if r.Body != "" {
			summary += " Body: " + strings.ToLower(r.Body[:1]) + r.Body[1:]
		}
		table += fmt.Sprintf("| `%s %s` | %s | %s | %s |\n", r.Method, r.Path, summary, strings.Join(parameters, ", "), strings.Join(answers, "<br>"))
	}
	return table
}

func parametersTable() string {
	table := "| Parameter | Description |\n|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(queryParameters)) {
		table += fmt.Sprintf("| `%s` | %s |\n", name, queryParameters[name].says)
	}
	return table
}
