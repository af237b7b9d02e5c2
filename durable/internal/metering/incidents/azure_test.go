package incidents

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// bicepFile has the log alerts of a new app.
const bicepFile = "../../../../handler/internal/newapp/files/main.bicep"

// A query selects log lines: one text of each condition must match. The Functions host logs lines of level ERROR with
// severity 3.
type query struct {
	errors     bool // only lines of severity 3
	conditions [][]*regexp.Regexp
}

const severityCondition = "severityLevel == 3 and "

// isError matches a line of level ERROR, as text or JSON.
var isError = regexp.MustCompile(`level=ERROR|"level":"ERROR"`)

var (
	bicepAlert = regexp.MustCompile(`name: '(\w+)'\n    severity: \d\n    description: '.*'\n    query: '(.*)'\n`)
	condition  = regexp.MustCompile(`message has(?:_any)? (\([^)]*\)|"[^"]*")`)
	quoted     = regexp.MustCompile(`"([^"]*)"`)
)

// azureQueries returns the queries of the alerts in the Bicep template, by name. They have only conditions on the
// severity and the message of a log line.
func azureQueries(t *testing.T) map[string]query {
	t.Helper()
	text, err := os.ReadFile(bicepFile)
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]query{}
	for _, alert := range bicepAlert.FindAllStringSubmatch(string(text), -1) {
		rest, ok := strings.CutPrefix(alert[2], "traces | where ")
		var q query
		rest, q.errors = strings.CutPrefix(rest, severityCondition)
		if left := strings.ReplaceAll(condition.ReplaceAllString(rest, ""), " and ", ""); !ok || left != "" {
			t.Fatalf("alert %s queries more than log lines: %s", alert[1], alert[2])
		}
		for _, c := range condition.FindAllStringSubmatch(rest, -1) {
			var texts []*regexp.Regexp
			for _, q := range quoted.FindAllStringSubmatch(c[1], -1) {
				// has finds a text between characters that are neither letters nor digits.
				texts = append(texts, regexp.MustCompile(`(?i)(?:^|[^0-9a-z])`+regexp.QuoteMeta(q[1])+`(?:$|[^0-9a-z])`))
			}
			q.conditions = append(q.conditions, texts)
		}
		queries[alert[1]] = q
	}
	for _, name := range []string{"failed", "nondeterminism", "undecodable", "notready"} {
		if len(queries[name].conditions) == 0 {
			t.Fatalf("the template lacks the alert %s: %v", name, queries)
		}
	}
	return queries
}

// matches returns the lines that the query selects.
func (q query) matches(lines []string) (found []string) {
	for _, line := range lines {
		all := !q.errors || isError.MatchString(line)
		for _, texts := range q.conditions {
			any := false
			for _, text := range texts {
				any = any || text.MatchString(line)
			}
			all = all && any
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}
