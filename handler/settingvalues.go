package handler

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// A settingValues is the kind of values that a setting takes.
type settingValues interface {
	// take reads s, which was found at path, and puts it into cfg. The error
	// says what is wrong with it, and where it comes from.
	take(r *settingReader, path string, s setting, cfg *Config) error

	// allowed says in words which values there are.
	allowed() string

	// schema describes the values to editors.
	schema() schemaNode
}

// errUnset says that a value is as good as none.
var errUnset = errors.New("counts as not given")

// A textValue is a string.
type textValue struct {
	set func(cfg *Config, value string)

	// resolved says that %NAME% in it stands for the setting NAME.
	resolved bool

	// must, if it is not nil, says what is wrong with a value.
	must func(value string) (must string)

	// hidden says that a wrong value may be a secret, and is not told.
	hidden bool

	// emptyIsUnset says that an empty string is as good as none.
	emptyIsUnset bool

	words, pattern string
}

func (k textValue) take(r *settingReader, path string, s setting, cfg *Config) error {
	if s.kind != kindString {
		return s.wrong(path, "a string")
	}
	value := strings.TrimSpace(s.text)
	if k.resolved {
		resolved, err := r.vars.substitute(s.text)
		if err != nil {
			return fmt.Errorf("%s is %s, which %w (%s)", path, s.written(), err, s.source)
		}
		value = strings.TrimSpace(resolved)
	}
	if value == "" && k.emptyIsUnset {
		return errUnset
	}
	if k.must != nil {
		if must := k.must(value); must != "" {
			if k.hidden {
				return fmt.Errorf("%s is something else than %s; it is not shown, since it could be a secret (%s)", path, must, s.source)
			}
			return s.wrongValue(path, value, must)
		}
	}
	if k.set != nil {
		k.set(cfg, value)
	}
	return nil
}

func (k textValue) allowed() string {
	out := k.words
	if out == "" {
		out = "a string"
	}
	if k.resolved {
		out += "; `%NAME%` stands for the setting NAME"
	}
	return out
}

func (k textValue) schema() schemaNode {
	n := schemaNode{"type": "string"}
	switch {
	case k.pattern != "" && k.resolved:
		n["anyOf"] = []schemaNode{{"pattern": k.pattern}, {"pattern": "%[^%]+%"}}
	case k.pattern != "":
		n["pattern"] = k.pattern
	}
	return n
}

// settingName matches the name of a setting, such as a connection.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)

// mustBeSettingName says what is wrong with the name of a setting. What stands
// there may well be the key or connection string that the setting should have,
// and names come to be told in URLs and errors.
func mustBeSettingName(value string) string {
	if settingName.MatchString(value) && secrets.Mask(value) == value {
		return ""
	}
	return "the name of a setting: letters, digits and _ . : -"
}

// A wholeValue is a whole number. As in .NET configuration, where every value is
// text, a string of digits is one, too.
type wholeValue struct {
	low, high int
	set       func(cfg *Config, n int)
}

func (k wholeValue) take(_ *settingReader, path string, s setting, cfg *Config) error {
	n, err := strconv.Atoi(strings.TrimSpace(s.text))
	if err != nil || n < k.low || n > k.high || s.kind != kindNumber && s.kind != kindString {
		return s.wrong(path, wholeRange(k.low, k.high))
	}
	if k.set != nil {
		k.set(cfg, n)
	}
	return nil
}

func (k wholeValue) allowed() string { return fmt.Sprintf("%d to %d", k.low, k.high) }

func (k wholeValue) schema() schemaNode {
	return schemaNode{"type": "integer", "minimum": k.low, "maximum": k.high}
}

// A boolValue is true or false, in any case, as JSON or as text.
type boolValue struct {
	set func(cfg *Config, b bool)
}

func (k boolValue) take(_ *settingReader, path string, s setting, cfg *Config) error {
	text := strings.ToLower(strings.TrimSpace(s.text))
	if s.kind != kindBool && s.kind != kindString || text != "true" && text != "false" {
		return s.wrong(path, "true or false")
	}
	if k.set != nil {
		k.set(cfg, text == "true")
	}
	return nil
}

func (boolValue) allowed() string { return "`true`, `false`" }

func (boolValue) schema() schemaNode { return schemaNode{"type": "boolean"} }

// A choiceValue is one of several names, in any case.
type choiceValue struct {
	names []string
	set   func(cfg *Config, index int)
}

func (k choiceValue) take(_ *settingReader, path string, s setting, cfg *Config) error {
	for i, name := range k.names {
		if s.kind == kindString && strings.EqualFold(strings.TrimSpace(s.text), name) {
			if k.set != nil {
				k.set(cfg, i)
			}
			return nil
		}
	}
	quoted := make([]string, len(k.names))
	for i, name := range k.names {
		quoted[i] = strconv.Quote(name)
	}
	return s.wrong(path, strings.Join(quoted, " or "))
}

func (k choiceValue) allowed() string { return "`" + strings.Join(k.names, "`, `") + "`" }

func (k choiceValue) schema() schemaNode { return schemaNode{"type": "string", "enum": k.names} }

// A spanValue is a time span, .NET's TimeSpan.
type spanValue struct {
	low, high time.Duration
	set       func(cfg *Config, d time.Duration)
}

func (k spanValue) take(_ *settingReader, path string, s setting, cfg *Config) error {
	d, err := parseTimeSpan(s.text)
	if err != nil || d < k.low || d > k.high || s.kind != kindString {
		return s.wrong(path, spanRange(k.low, k.high))
	}
	if k.set != nil {
		k.set(cfg, d)
	}
	return nil
}

func (k spanValue) allowed() string {
	return fmt.Sprintf("`%s` to `%s`", shortTimeSpan(k.low), shortTimeSpan(k.high))
}

func (spanValue) schema() schemaNode {
	return schemaNode{"type": "string", "pattern": `^(\d+\.)?\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,7})?)?$`}
}

// shortTimeSpan is formatTimeSpan without zeros at the end of a fraction.
func shortTimeSpan(d time.Duration) string {
	s := formatTimeSpan(d)
	if head, fraction, ok := strings.Cut(s, "."); ok && len(fraction) == 7 {
		return head + "." + strings.TrimRight(fraction, "0")
	}
	return s
}

// A listValue holds numbers or names.
type listValue struct {
	item  schemaNode
	words string

	// each takes an element; false means that it is not allowed.
	each func(cfg *Config, s setting) bool
}

func (k listValue) take(r *settingReader, path string, s setting, cfg *Config) error {
	must := strings.ReplaceAll(k.words, "`", "")
	if s.kind != kindArray {
		return s.wrong(path, must)
	}
	for _, element := range r.found.children(path) {
		if element.kind != kindString && element.kind != kindNumber || !k.each(cfg, element) {
			return fmt.Errorf("%s has %s in it, must be %s (%s)", path, element.written(), must, element.source)
		}
	}
	return nil
}

func (k listValue) allowed() string { return k.words }

func (k listValue) schema() schemaNode { return schemaNode{"type": "array", "items": k.item} }

// spanRange says in words which time spans are allowed.
func spanRange(low, high time.Duration) string {
	return fmt.Sprintf("a time span from %s to %s", shortTimeSpan(low), shortTimeSpan(high))
}

// wholeRange says in words which whole numbers are allowed.
func wholeRange(low, high int) string {
	return fmt.Sprintf("a whole number from %d to %d", low, high)
}
