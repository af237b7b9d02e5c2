package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sampleChangelog = `# Changelog

## [Unreleased]

## [0.2.0] - 2026-03-01

### Operate

- A change.

## [0.1.0] - 2026-01-31

- The first release.
`

func TestNewestVersion_ReadsNumberDateAndNotes(t *testing.T) {
	t.Parallel()
	got, err := newestVersion(sampleChangelog)
	want := changelogVersion{number: "0.2.0", date: "2026-03-01", notes: "### Operate\n\n- A change.\n"}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := newestVersion("# Changelog\n\n## [Unreleased]\n\n- A change.\n"); err == nil || !strings.Contains(err.Error(), "no heading of a version") {
		t.Errorf("without a version: %v", err)
	}
}

func TestCheckTag_WantsTheNewestVersionWithADateAndAllChanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tag, old, replacement, want string }{
		{"v0.2.0", "", "", ""},
		{"v0.1.0", "", "", "want the tag v0.2.0"},
		{"0.2.0", "", "", "want the tag v0.2.0"},
		{"v0.2.0", "[0.2.0] - 2026-03-01", "[0.2.0]", "has no date"},
		{"v0.2.0", "[Unreleased]\n", "[Unreleased]\n\n- Forgotten.\n", "has changes below Unreleased"},
		{"v0.2.0-rc.1", "[0.2.0] - ", "[0.2.0-rc.1] - ", ""},
	} {
		newest, err := newestVersion(strings.Replace(sampleChangelog, tt.old, tt.replacement, 1))
		if err != nil {
			t.Fatal(err)
		}
		err = newest.checkTag(tt.tag)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("tag %s, %q instead of %q: %v, want %q", tt.tag, tt.replacement, tt.old, err, tt.want)
		}
	}
}

// The last commit may have a tag. Then CHANGELOG.md must describe it.
func TestCheckTag_AcceptsTheTagOfTheLastCommit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(checkout, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	newest, err := newestVersion(string(text))
	if err != nil {
		t.Fatal(err)
	}
	tags, err := git(t.Context(), checkout, "tag", "--points-at", "HEAD", "--list", "v*")
	if err != nil {
		t.Skipf("no checkout: %v", err)
	}
	for tag := range strings.FieldsSeq(string(tags)) {
		if err := newest.checkTag(tag); err != nil {
			t.Error(err)
		}
	}
}
