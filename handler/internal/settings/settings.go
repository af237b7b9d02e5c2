package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// overridePrefix is the prefix of environment variables that override host.json, in lower case. After
// the prefix follow the names of objects, separated by "__" or ":". The host loads the file as the
// section AzureFunctionsJobHost of its configuration (azure-functions-host:
// Config/HostJsonFileConfigurationSource.cs).
const overridePrefix = "azurefunctionsjobhost."

// A settingKind is a type of JSON value.
type settingKind int

const (
	kindNull settingKind = iota
	kindString
	kindNumber
	kindBool
	kindObject
	kindArray
)

// A Setting is a value in host.json or in an environment variable that overrides it.
type Setting struct {
	path   string // names separated by dots, in their original spelling
	kind   settingKind
	Text   string // of a string, number or Boolean
	Source string // such as "host.json line 7" or "environment variable X"
}

// literal returns the value in the form of host.json, for error messages.
func (s Setting) literal() string {
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

// IsTrue reports whether the value is true, as a JSON Boolean or as text.
func (s Setting) IsTrue() bool { return strings.EqualFold(strings.TrimSpace(s.Text), "true") }

// wrong returns the error for an invalid value. It contains the value, its source and the allowed
// values. path is the documented spelling.
func (s Setting) wrong(path, want string) error {
	return fmt.Errorf("%s is %s; want %s (%s)", path, s.literal(), want, s.Source)
}

// wrongValue is like [Setting.wrong], for a value after substitution of %NAME%.
func (s Setting) wrongValue(path, value, want string) error {
	if value == strings.TrimSpace(s.Text) {
		return s.wrong(path, want)
	}
	return fmt.Errorf("%s is %s, which resolves to %q; want %s (%s)", path, s.literal(), secrets.Mask(value), want, s.Source)
}

// Settings maps paths to values. Paths are not case-sensitive.
type Settings struct{ byPath map[string]Setting }

// New returns empty Settings.
func New() Settings { return Settings{byPath: map[string]Setting{}} }

// Lookup returns the setting at path. A setting that is null counts as missing, as in .NET
// configuration.
func (s Settings) Lookup(path string) (Setting, bool) {
	found, ok := s.byPath[strings.ToLower(path)]
	return found, ok && found.kind != kindNull
}

func (s Settings) set(v Setting) { s.byPath[strings.ToLower(v.path)] = v }

// remove removes path and everything below it.
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

// children returns the settings directly below path, ordered by name.
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
		// Only variables set something below it.
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

// Override applies the environment variables that override host.json. environ has the form of
// [os.Environ]. An empty variable overrides nothing. If names differ only in case or separators, the
// last one in sorted order applies.
func (s Settings) Override(environ []string) {
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		path := strings.NewReplacer("__", ".", ":", ".").Replace(name)
		if value == "" || len(path) <= len(overridePrefix) || !strings.EqualFold(path[:len(overridePrefix)], overridePrefix) {
			continue
		}
		path = path[len(overridePrefix):]
		if s.byPath[strings.ToLower(path)].kind == kindObject {
			continue // .NET keeps the value of a section separate from its members
		}
		s.set(Setting{path: path, kind: kindString, Text: value, Source: "environment variable " + name})
	}
}
