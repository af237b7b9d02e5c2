package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// Values describes the allowed values of a setting: [Text], [Integer], [Bool], [Choice], [TimeSpan] or
// [List].
type Values[C any] interface {
	// take validates s, the setting at path, and stores its value in cfg. The error contains the path,
	// the value, the allowed values and the source.
	take(r *Reader[C], path string, s Setting, cfg *C) error

	// Allowed describes the allowed values in Markdown.
	Allowed() string

	// schema describes the allowed values for editors.
	schema() Schema
}

// errUnset is returned by take for a value that counts as missing.
var errUnset = errors.New("counts as not set")

// Text allows a string.
type Text[C any] struct {
	Set func(cfg *C, value string)

	// Resolved replaces %NAME% in the value with the setting NAME.
	Resolved bool

	// Mismatch, if not nil, returns "" for an allowed value, otherwise a description of the allowed
	// values.
	Mismatch func(value string) string

	// Hidden omits an invalid value from the error, because it may be a secret.
	Hidden bool

	// EmptyIsUnset ignores an empty string.
	EmptyIsUnset bool

	// Words describes the allowed values. Pattern is a regular expression for the schema.

	Words, Pattern string
}

func (k Text[C]) take(r *Reader[C], path string, s Setting, cfg *C) error {
	if s.kind != kindString {
		return s.wrong(path, "a string")
	}
	value := strings.TrimSpace(s.Text)
	if k.Resolved {
		resolved, err := r.vars.substitute(s.Text)
		if err != nil {
			return fmt.Errorf("%s is %s, which %w (%s)", path, s.literal(), err, s.Source)
		}
		value = strings.TrimSpace(resolved)
	}
	if value == "" && k.EmptyIsUnset {
		return errUnset
	}
	if k.Mismatch != nil {
		if want := k.Mismatch(value); want != "" {
			if k.Hidden {
				return fmt.Errorf("%s has a value that may be a secret and is not shown; want %s (%s)", path, want, s.Source)
			}
			return s.wrongValue(path, value, want)
		}
	}
	if k.Set != nil {
		k.Set(cfg, value)
	}
	return nil
}

// Allowed implements [Values].
func (k Text[C]) Allowed() string {
	out := k.Words
	if out == "" {
		out = "a string"
	}
	if k.Resolved {
		out += "; `%NAME%` stands for the setting NAME"
	}
	return out
}

func (k Text[C]) schema() Schema {
	n := Schema{"type": "string"}
	switch {
	case k.Pattern != "" && k.Resolved:
		n["anyOf"] = []Schema{{"pattern": k.Pattern}, {"pattern": "%[^%]+%"}}
	case k.Pattern != "":
		n["pattern"] = k.Pattern
	}
	return n
}

// settingName matches the name of a setting, such as a connection.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)

// CheckSettingName returns "" for the name of a setting, otherwise a description of such names. It
// rejects keys and connection strings, which users often enter instead of the name of their setting:
// names appear in URLs and errors.
func CheckSettingName(value string) string {
	if settingName.MatchString(value) && secrets.Mask(value) == value {
		return ""
	}
	return "the name of a setting: letters, digits and _ . : -"
}

// Integer allows a whole number. A string of digits is a number, too, as in .NET configuration, where
// every value is text.
type Integer[C any] struct {
	Low, High int
	Set       func(cfg *C, n int)

	// Max, if not nil, returns the effective upper limit for a configuration, at most High.
	Max func(cfg *C) int
}

func (k Integer[C]) take(_ *Reader[C], path string, s Setting, cfg *C) error {
	high := k.High
	if k.Max != nil {
		high = k.Max(cfg)
	}
	n, err := strconv.Atoi(strings.TrimSpace(s.Text))
	if err != nil || n < k.Low || n > high || s.kind != kindNumber && s.kind != kindString {
		return s.wrong(path, wholeRange(k.Low, high))
	}
	if k.Set != nil {
		k.Set(cfg, n)
	}
	return nil
}

// Allowed implements [Values].
func (k Integer[C]) Allowed() string { return fmt.Sprintf("%d to %d", k.Low, k.High) }

func (k Integer[C]) schema() Schema {
	return Schema{"type": "integer", "minimum": k.Low, "maximum": k.High}
}

// Bool allows true and false in any case, as a JSON Boolean or as text.
type Bool[C any] struct {
	Set func(cfg *C, b bool)
}

func (k Bool[C]) take(_ *Reader[C], path string, s Setting, cfg *C) error {
	text := strings.ToLower(strings.TrimSpace(s.Text))
	if s.kind != kindBool && s.kind != kindString || text != "true" && text != "false" {
		return s.wrong(path, "true or false")
	}
	if k.Set != nil {
		k.Set(cfg, text == "true")
	}
	return nil
}

// Allowed implements [Values].
func (Bool[C]) Allowed() string { return "`true`, `false`" }

func (Bool[C]) schema() Schema { return Schema{"type": "boolean"} }

// Choice allows one of several names, in any case.
type Choice[C any] struct {
	Names []string
	Set   func(cfg *C, index int)
}

func (k Choice[C]) take(_ *Reader[C], path string, s Setting, cfg *C) error {
	for i, name := range k.Names {
		if s.kind == kindString && strings.EqualFold(strings.TrimSpace(s.Text), name) {
			if k.Set != nil {
				k.Set(cfg, i)
			}
			return nil
		}
	}
	quoted := make([]string, len(k.Names))
	for i, name := range k.Names {
		quoted[i] = strconv.Quote(name)
	}
	return s.wrong(path, strings.Join(quoted, " or "))
}

// Allowed implements [Values].
func (k Choice[C]) Allowed() string { return "`" + strings.Join(k.Names, "`, `") + "`" }

func (k Choice[C]) schema() Schema {
	return Schema{"type": "string", "enum": k.Names}
}

// TimeSpan allows a time span in the format of .NET's TimeSpan.
type TimeSpan[C any] struct {
	Low, High time.Duration
	Set       func(cfg *C, d time.Duration)
}

func (k TimeSpan[C]) take(_ *Reader[C], path string, s Setting, cfg *C) error {
	d, err := ParseTimeSpan(s.Text)
	if err != nil || d < k.Low || d > k.High || s.kind != kindString {
		return s.wrong(path, spanRange(k.Low, k.High))
	}
	if k.Set != nil {
		k.Set(cfg, d)
	}
	return nil
}

// Allowed implements [Values].
func (k TimeSpan[C]) Allowed() string {
	return fmt.Sprintf("`%s` to `%s`", shortTimeSpan(k.Low), shortTimeSpan(k.High))
}

func (TimeSpan[C]) schema() Schema {
	return Schema{"type": "string", "pattern": `^(\d+\.)?\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,7})?)?$`}
}

// shortTimeSpan formats d like [FormatTimeSpan], without trailing zeros in the fraction.
func shortTimeSpan(d time.Duration) string {
	s := FormatTimeSpan(d)
	if head, fraction, ok := strings.Cut(s, "."); ok && len(fraction) == 7 {
		return head + "." + strings.TrimRight(fraction, "0")
	}
	return s
}

// List allows an array of numbers or names.
type List[C any] struct {
	Item  Schema
	Words string

	// Store stores an element. It returns false if the element is not allowed.
	Store func(cfg *C, s Setting) bool
}

func (k List[C]) take(r *Reader[C], path string, s Setting, cfg *C) error {
	want := strings.ReplaceAll(k.Words, "`", "")
	if s.kind != kindArray {
		return s.wrong(path, want)
	}
	for _, element := range r.found.children(path) {
		if element.kind != kindString && element.kind != kindNumber || !k.Store(cfg, element) {
			return fmt.Errorf("%s contains %s; want %s (%s)", path, element.literal(), want, element.Source)
		}
	}
	return nil
}

// Allowed implements [Values].
func (k List[C]) Allowed() string { return k.Words }

func (k List[C]) schema() Schema {
	return Schema{"type": "array", "items": k.Item}
}

// spanRange describes a range of time spans.
func spanRange(low, high time.Duration) string {
	return fmt.Sprintf("a time span from %s to %s", shortTimeSpan(low), shortTimeSpan(high))
}

// wholeRange describes a range of whole numbers.
func wholeRange(low, high int) string {
	return fmt.Sprintf("a whole number from %d to %d", low, high)
}
