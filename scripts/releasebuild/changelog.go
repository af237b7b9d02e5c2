package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A changelogVersion is a version in CHANGELOG.md.
type changelogVersion struct {
	number     string // such as 0.1.0
	date       string // such as 2026-01-31, empty if the heading has none
	notes      string // the text below the heading
	unreleased string // the text below the heading Unreleased, which precedes the newest version
}

var versionHeading = regexp.MustCompile(`(?m)^## \[(Unreleased|\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)\](?: - (\d{4}-\d{2}-\d{2}))?$`)

// newestVersion returns the first version in the text of CHANGELOG.md.
func newestVersion(changelog string) (changelogVersion, error) {
	var newest changelogVersion
	headings := versionHeading.FindAllStringSubmatchIndex(changelog, -1)
	for i, at := range headings {
		end := len(changelog)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		number, text := changelog[at[2]:at[3]], strings.TrimSpace(changelog[at[1]:end])
		if number == "Unreleased" {
			newest.unreleased = text
			continue
		}
		newest.number, newest.notes = number, text+"\n"
		if at[4] >= 0 {
			newest.date = changelog[at[4]:at[5]]
		}
		return newest, nil
	}
	return newest, errors.New("CHANGELOG.md has no heading of a version, such as ## [0.1.0] - 2026-01-31")
}

// checkTag returns an error unless CHANGELOG.md describes the tag's version completely.
func (v changelogVersion) checkTag(tag string) error {
	switch {
	case tag != "v"+v.number:
		return fmt.Errorf("the tag is %s and the newest version in CHANGELOG.md is %s; want the tag v%[2]s", tag, v.number)
	case v.date == "":
		return fmt.Errorf("version %s has no date in CHANGELOG.md", v.number)
	case v.unreleased != "":
		return fmt.Errorf("CHANGELOG.md has changes below Unreleased; move them to version %s", v.number)
	}
	return nil
}
