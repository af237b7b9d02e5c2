package durable_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Tasks of new users must be answered by a page that is at most two links from the README.
func TestREADME_TasksAreAnsweredWithinTwoClicks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s#:]+\.md)`)
	linked := func(path string) (targets []string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			targets = append(targets, filepath.Join(filepath.Dir(path), filepath.FromSlash(m[1])))
		}
		return targets
	}
	near := linked(filepath.Join("..", "README.md"))
	for _, path := range slices.Clone(near) {
		near = append(near, linked(path)...)
	}
	for _, task := range []struct{ task, page, heading string }{
		{"version a workflow", "change-deploy.md", "## Large change: versions"},
		{"alert on failures", "operate-monitor.md", "## Do orchestrations fail?"},
		{"tune for cost", "configure-cost.md", "## Reduce requests"},
		{"rotate a key", "configure-security.md", "## Rotate the key"},
		{"move to another account", "operate-backup.md", "### To another account"},
		{"debug a stuck instance", "operate-why.md", "# Find out why an instance is waiting"},
		{"test a retry", "test-unit.md", "# Write unit tests in virtual time"},
		{"migrate a C# app", "migrate-dotnet.md", "## The same program"},
		{"limit memory", "configure-hostjson.md", "## Less memory"},
		{"scale on Kubernetes", "configure-scale.md", "## On Kubernetes or Container Apps"},
	} {
		path := filepath.Join("..", "durable", docsFolder, task.page)
		if !slices.Contains(near, path) {
			t.Errorf("%s: %s is more than two links away from README.md", task.task, task.page)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Split(string(text), "\n"), task.heading) {
			t.Errorf("%s: %s has no line %q", task.task, task.page, task.heading)
		}
	}
}
