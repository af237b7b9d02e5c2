package handler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// overridePrefix begins the names of variables that override host.json, before
// the names of its objects, each followed by "__" or ":"
// (azure-functions-host: Config/HostJsonFileConfigurationSource.cs makes the
// file the section AzureFunctionsJobHost of the host's configuration).
const overridePrefix = "azurefunctionsjobhost."

// A settingKind is what sort of JSON value a setting was given.
type settingKind int

const (
	kindNull settingKind = iota
	kindString
	kindNumber
	kindBool
	kindObject
	kindArray
)

// A setting is one value of host.json, or of a variable that overrides it.
type setting struct {
	path   string // names joined by points, spelled as they were found
	kind   settingKind
	text   string // of a string, number or bool
	source string // "host.json line 7", "environment variable X"
}

// written returns the value as a person wrote it, for error messages.
func (s setting) written() string {
	switch s.kind {
	case kindString:
		return strconv.Quote(secrets.Mask(s.text))
	case kindNumber, kindBool:
		return s.text
	case kindObject:
		return "an object"
	case kindArray:
		return "an array"
	case kindNull:
	}
	return "null"
}

// isTrue reports whether the value is true, as JSON or as text.
func (s setting) isTrue() bool { return strings.EqualFold(strings.TrimSpace(s.text), "true") }

// wrong returns the error that says what a setting is, must be, and where it
// comes from. The path is that of the documentation, whatever case was used.
func (s setting) wrong(path, must string) error {
	return fmt.Errorf("%s is %s, must be %s (%s)", path, s.written(), must, s.source)
}

// wrongValue is [setting.wrong] for a value that came of substitution.
func (s setting) wrongValue(path, value, must string) error {
	if value == strings.TrimSpace(s.text) {
		return s.wrong(path, must)
	}
	return fmt.Errorf("%s is %s, which stands for %q, must be %s (%s)", path, s.written(), secrets.Mask(value), must, s.source)
}

// settings are values by path, without regard to case.
type settings struct{ byPath map[string]setting }

func newSettings() settings { return settings{byPath: map[string]setting{}} }

// lookup returns the setting at path. One that is null counts as not given, as
// in .NET configuration.
func (s settings) lookup(path string) (setting, bool) {
	found, ok := s.byPath[strings.ToLower(path)]
	return found, ok && found.kind != kindNull
}

func (s settings) set(v setting) { s.byPath[strings.ToLower(v.path)] = v }

// remove forgets path and all that is below it.
func (s settings) remove(path string) {
	path = strings.ToLower(path)
	if _, ok := s.byPath[path]; !ok {
		return
	}
	for p := range s.byPath {
		if p == path || strings.HasPrefix(p, path+".") {
			delete(s.byPath, p)
		}
	}
}

// children returns the settings right below path, ordered by name.
func (s settings) children(path string) []setting {
	prefix := strings.ToLower(path) + "."
	names := map[string]bool{}
	for p := range s.byPath {
		if rest, ok := strings.CutPrefix(p, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			names[name] = true
		}
	}
	var out []setting
	for name := range names {
		if child, ok := s.byPath[prefix+name]; ok {
			out = append(out, child)
			continue
		}
		// Only something below it is known, which a variable named.
		out = append(out, setting{path: prefix + name, kind: kindObject, source: s.anyBelow(prefix + name).source})
	}
	slices.SortFunc(out, func(a, b setting) int { return strings.Compare(strings.ToLower(a.path), strings.ToLower(b.path)) })
	return out
}

func (s settings) anyBelow(path string) setting {
	var below []string
	for p := range s.byPath {
		if strings.HasPrefix(p, path+".") {
			below = append(below, p)
		}
	}
	slices.Sort(below)
	return s.byPath[below[0]]
}

// override applies the variables in environ, which has the form of
// [os.Environ], that override host.json. An empty one overrides nothing. If
// two differ only in case or separators, the one that sorts last counts.
func (s settings) override(environ []string) {
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		path := strings.NewReplacer("__", ".", ":", ".").Replace(name)
		if value == "" || len(path) <= len(overridePrefix) || !strings.EqualFold(path[:len(overridePrefix)], overridePrefix) {
			continue
		}
		path = path[len(overridePrefix):]
		if s.byPath[strings.ToLower(path)].kind == kindObject {
			continue // .NET keeps a section's own value apart from its members
		}
		s.set(setting{path: path, kind: kindString, text: value, source: "environment variable " + name})
	}
}
