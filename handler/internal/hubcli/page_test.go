package hubcli

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
)

// verbsPage is the page of the documentation with all verbs and flags.
const verbsPage = "../../../durable/docs/reference-cli.md"

func TestVerbs_ThePageHasARowForEach(t *testing.T) {
	rewrite := flag.Lookup("rewrite").Value.String() == "true" // declared in package hubcli_test
	pagetable.Check(t, verbsPage, rewrite, map[string]string{"verbs": verbsTable(), "flags": flagsTable()})
}

func verbsTable() string {
	table := "| Verb | Description |\n|---|---|\n"
	for _, v := range verbs {
		more := strings.ReplaceAll(v.more, "\n", " ")
		table += fmt.Sprintf("| `%s` | %s |\n", strings.Join(append([]string{v.name}, v.args...), " "), strings.TrimSpace(v.does+". "+more))
	}
	return table
}

// flagsTable returns a table with a row per flag and the verbs that have it. A flag with several
// descriptions has several rows.
func flagsTable() string {
	with := map[string][]string{} // verbs by the first cells of a row
	for _, v := range verbs {
		newFlags(v).set.VisitAll(func(one *flag.Flag) {
			if one.Usage == "" {
				return // a former name of another flag
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
