package settings

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

// A Setting is one value of host.json, or of a variable that overrides it.
type Setting struct {
	path   string // names joined by points, spelled as they were found
	kind   settingKind
	Text   string // of a string, number or bool
	Source string // "host.json line 7", "environment variable X"
}

// written returns the value as it stands in host.json, for error messages.
func (s Setting) written() string {
	switch s.kind {
	case kindString:
		return strconv.Quote(secrets.Mask(s.Text))
	case kindNumber, kindBool:
		return s.Text
	case kindObject:
		return "an object"
	case kindArray:
		return "an array"
	case kindNull:
	}
	return "null"
}

// IsTrue reports whether the value is true, as JSON or as text.
func (s Setting) IsTrue() bool { return strings.EqualFold(strings.TrimSpace(s.Text), "true") }

// wrong returns the error that names a setting, its value, the values wanted and its
// source. The path is spelled as in the documentation.
func (s Setting) wrong(path, want string) error {
	return fmt.Errorf("%s is %s; want %s (%s)", path, s.written(), want, s.Source)
}

// wrongValue is [Setting.wrong] for a value in which variables were substituted.
func (s Setting) wrongValue(path, value, want string) error {
	if value == strings.TrimSpace(s.Text) {
		return s.wrong(path, want)
	}
	return fmt.Errorf("%s is %s, which stands for %q; want %s (%s)", path, s.written(), secrets.Mask(value), want, s.Source)
}

// Settings are values by path, without regard to case.
type Settings struct{ byPath map[string]Setting }

// New returns Settings without values.
func New() Settings { return Settings{byPath: map[string]Setting{}} }

// Lookup returns the setting at path. One that is null counts as not given, as
// in .NET configuration.
func (s Settings) Lookup(path string) (Setting, bool) {
	found, ok := s.byPath[strings.ToLower(path)]
	return found, ok && found.kind != kindNull
}

func (s Settings) set(v Setting) { s.byPath[strings.ToLower(v.path)] = v }

// remove forgets path and all that is below it.
func (s Settings) remove(path string) {
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
func (s Settings) children(path string) []Setting {
	prefix := strings.ToLower(path) + "."
	names := map[string]bool{}
	for p := range s.byPath {
		if rest, ok := strings.CutPrefix(p, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			names[name] = true
		}
	}
	var out []Setting
	for name := range names {
		if child, ok := s.byPath[prefix+name]; ok {
			out = append(out, child)
			continue
		}
		// Only something below it is known, which a variable named.
		out = append(out, Setting{path: prefix + name, kind: kindObject, Source: s.anyBelow(prefix + name).Source})
	}
	slices.SortFunc(out, func(a, b Setting) int { return strings.Compare(strings.ToLower(a.path), strings.ToLower(b.path)) })
	return out
}

func (s Settings) anyBelow(path string) Setting {
	var below []string
	for p := range s.byPath {
		if strings.HasPrefix(p, path+".") {
			below = append(below, p)
		}
	}
	slices.Sort(below)
	return s.byPath[below[0]]
}

// Override applies the variables in environ, which has the form of
// [os.Environ], that override host.json. An empty one overrides nothing. If
// two differ only in case or separators, the one that sorts last counts.
func (s Settings) Override(environ []string) {
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
		s.set(Setting{path: path, kind: kindString, Text: value, Source: "environment variable " + name})
	}
}
