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
type settingValues[C any] interface {
	// take reads s, which was found at path, and puts it into cfg. The error
	// says what is wrong with it, and where it comes from.
	take(r *settingReader[C], path string, s setting, cfg *C) error

	// allowed says in words which values there are.
	allowed() string

	// schema describes the values to editors.
	schema() settingSchema
}

// errUnset says that a value is as good as none.
var errUnset = errors.New("counts as not given")

// A textValue is a string.
type textValueOf[C any] struct {
	set func(cfg *C, value string)

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

func (k textValueOf[C]) take(r *settingReader[C], path string, s setting, cfg *C) error {
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

func (k textValueOf[C]) allowed() string {
	out := k.words
	if out == "" {
		out = "a string"
	}
	if k.resolved {
		out += "; `%NAME%` stands for the setting NAME"
	}
	return out
}

func (k textValueOf[C]) schema() settingSchema {
	n := settingSchema{"type": "string"}
	switch {
	case k.pattern != "" && k.resolved:
		n["anyOf"] = []settingSchema{{"pattern": k.pattern}, {"pattern": "%[^%]+%"}}
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
type wholeValueOf[C any] struct {
	low, high int
	set       func(cfg *C, n int)
}

func (k wholeValueOf[C]) take(_ *settingReader[C], path string, s setting, cfg *C) error {
	n, err := strconv.Atoi(strings.TrimSpace(s.text))
	if err != nil || n < k.low || n > k.high || s.kind != kindNumber && s.kind != kindString {
		return s.wrong(path, wholeRange(k.low, k.high))
	}
	if k.set != nil {
		k.set(cfg, n)
	}
	return nil
}

func (k wholeValueOf[C]) allowed() string { return fmt.Sprintf("%d to %d", k.low, k.high) }

func (k wholeValueOf[C]) schema() settingSchema {
	return settingSchema{"type": "integer", "minimum": k.low, "maximum": k.high}
}

// A boolValue is true or false, in any case, as JSON or as text.
type boolValueOf[C any] struct {
	set func(cfg *C, b bool)
}

func (k boolValueOf[C]) take(_ *settingReader[C], path string, s setting, cfg *C) error {
	text := strings.ToLower(strings.TrimSpace(s.text))
	if s.kind != kindBool && s.kind != kindString || text != "true" && text != "false" {
		return s.wrong(path, "true or false")
	}
	if k.set != nil {
		k.set(cfg, text == "true")
	}
	return nil
}

func (boolValueOf[C]) allowed() string { return "`true`, `false`" }

func (boolValueOf[C]) schema() settingSchema { return settingSchema{"type": "boolean"} }

// A choiceValue is one of several names, in any case.
type choiceValueOf[C any] struct {
	names []string
	set   func(cfg *C, index int)
}

func (k choiceValueOf[C]) take(_ *settingReader[C], path string, s setting, cfg *C) error {
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

func (k choiceValueOf[C]) allowed() string { return "`" + strings.Join(k.names, "`, `") + "`" }

func (k choiceValueOf[C]) schema() settingSchema {
	return settingSchema{"type": "string", "enum": k.names}
}

// A spanValue is a time span, .NET's TimeSpan.
type spanValueOf[C any] struct {
	low, high time.Duration
	set       func(cfg *C, d time.Duration)
}

func (k spanValueOf[C]) take(_ *settingReader[C], path string, s setting, cfg *C) error {
	d, err := parseTimeSpan(s.text)
	if err != nil || d < k.low || d > k.high || s.kind != kindString {
		return s.wrong(path, spanRange(k.low, k.high))
	}
	if k.set != nil {
		k.set(cfg, d)
	}
	return nil
}

func (k spanValueOf[C]) allowed() string {
	return fmt.Sprintf("`%s` to `%s`", shortTimeSpan(k.low), shortTimeSpan(k.high))
}

func (spanValueOf[C]) schema() settingSchema {
	return settingSchema{"type": "string", "pattern": `^(\d+\.)?\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,7})?)?$`}
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
type listValueOf[C any] struct {
	item  settingSchema
	words string

	// each takes an element; false means that it is not allowed.
	each func(cfg *C, s setting) bool
}

func (k listValueOf[C]) take(r *settingReader[C], path string, s setting, cfg *C) error {
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

func (k listValueOf[C]) allowed() string { return k.words }

func (k listValueOf[C]) schema() settingSchema {
	return settingSchema{"type": "array", "items": k.item}
}

// spanRange says in words which time spans are allowed.
func spanRange(low, high time.Duration) string {
	return fmt.Sprintf("a time span from %s to %s", shortTimeSpan(low), shortTimeSpan(high))
}

// wholeRange says in words which whole numbers are allowed.
func wholeRange(low, high int) string {
	return fmt.Sprintf("a whole number from %d to %d", low, high)
}
