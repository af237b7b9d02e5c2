package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(checkout, ".github", "workflows", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Skipf("no workflows: %v", err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(text)
	}
	return texts
}

// A tag of an action can move, a commit cannot.
func TestWorkflows_PinEachActionByCommit(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	found := 0
	for name, text := range workflows(t) {
		for line := range strings.Lines(text) {
			if _, action, ok := strings.Cut(line, "uses: "); ok {
				found++
				if !pinned.MatchString(strings.TrimSpace(action)) {
					t.Errorf("%s: %s: want a commit, with its version as a comment", name, strings.TrimSpace(line))
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d actions", found)
	}
}

func TestWorkflows_CompareEachReleasedProgram(t *testing.T) {
	t.Parallel()
	text, ok := workflows(t)["release.yml"]
	if !ok {
		t.Fatal("there is no release.yml")
	}
	for _, want := range []string{"for program in " + strings.Join(programs, " ") + ";", "go install " + strings.Join(buildFlags, " ") + " "} {
		if !strings.Contains(text, want) {
			t.Errorf("release.yml does not have %q", want)
		}
	}
}
