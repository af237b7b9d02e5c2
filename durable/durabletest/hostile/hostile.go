// Package hostile is for tests of checks that trust a name. It returns names that resemble the
// trusted one. Each check must refuse all of them.
package hostile

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Hosts returns host names that resemble a trusted host. Pages of other sites can have them: they consist of
// letters, digits, hyphens, underscores and dots. All differ from host, even if case is ignored.
func Hosts(host string) []string {
	return without(host, append(common(host),
		host+".evil.example", "evil.example."+host, host+".evil", host+"_evil", host+"."+host, host+"-"+host))
}

// Names returns texts that resemble a trusted name: an ID, a path segment, a key or a container. All differ
// from name, even if case is ignored. They are valid UTF-8.
func Names(name string) []string {
	names := append(common(name), "*", "%", "null")
	for _, separator := range []string{".", "_", "/", "\\", ":", "@", "#", "?", "&", "=", ",", ";", "|", "%2f", "%00", " ", "'", `"`} {
		names = append(names, name+separator, separator+name, name+separator+"evil", "evil"+separator+name)
	}
	return without(name, names)
}

// common returns names that have the trusted one, or most of it, at their beginning, in their middle
// or at their end.
func common(name string) []string {
	_, first := utf8.DecodeRuneInString(name)
	_, last := utf8.DecodeLastRuneInString(name)
	middle := len(name) / 2
	for middle > 0 && !utf8.RuneStart(name[middle]) {
		middle--
	}
	return []string{
		"evil" + name, "x" + name, "evil-" + name, "evil." + name, name + "evil", name + "x", name + "-evil", name + "0",
		name[first:], name[:len(name)-last], name + name, name[:middle] + "x" + name[middle:], name[:middle] + "-" + name[middle:],
		name[:middle], name[middle:],
	}
}

// without returns names in order, without duplicates, empty names and names that equal name.
func without(name string, names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || strings.EqualFold(n, name) })
}

// A Reporter reports the errors of a test, as [testing.T] does.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// NoneOf reports an error for each name that a check accepts. The check must refuse all names except
// those that allowed accepts; nil allows none. NoneOf also reports an error if the check refuses the
// trusted name, because such a check proves nothing.
func NoneOf(t Reporter, check, trusted string, names []string, accepts, allowed func(name string) bool) {
	t.Helper()
	if !accepts(trusted) {
		t.Errorf("%s refuses the trusted name %q", check, trusted)
	}
	for _, name := range names {
		if accepts(name) && (allowed == nil || !allowed(name)) {
			t.Errorf("%s accepts %q, which only resembles %q", check, name, trusted)
		}
	}
}
