package management

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of routes and parameters into the page of the documentation")

// routesPage is the page of the documentation with all routes.
const routesPage = "../../../durable/docs/reference-http.md"

func TestRoutes_ThePageHasARowForEach(t *testing.T) {
	t.Parallel()
	pagetable.Check(t, routesPage, *rewrite, map[string]string{"routes": routesTable(), "parameters": parametersTable()})
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
