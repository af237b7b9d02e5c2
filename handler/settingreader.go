package handler

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A settingReader reads settings one by one and gathers what is wrong with
// them, so that an operator is told everything at once.
type settingReader struct {
	found    settings
	vars     variables
	asked    map[string]bool // paths that were read, in lower case
	problems []error
	notices  []string
}

func (r *settingReader) problem(err error) {
	if err != nil {
		r.problems = append(r.problems, err)
	}
}

// find returns the setting at path and remembers that it is known.
func (r *settingReader) find(path string) (setting, bool) {
	if r.asked == nil {
		r.asked = map[string]bool{}
	}
	r.asked[strings.ToLower(path)] = true
	return r.found.lookup(path)
}

// object checks that what is at path, if anything, is an object.
func (r *settingReader) object(path string) {
	if s, ok := r.find(path); ok && s.kind != kindObject {
		r.problem(s.wrong(path, "an object"))
	}
}

// text reads a string.
func (r *settingReader) text(path string, use func(setting)) {
	s, ok := r.find(path)
	if !ok {
		return
	}
	if s.kind != kindString {
		r.problem(s.wrong(path, "a string"))
		return
	}
	use(s)
}

// resolved reads a string in which %NAME% stands for the setting NAME. use may
// refuse the value.
func (r *settingReader) resolved(path string, use func(s setting, value string) error) {
	r.text(path, func(s setting) {
		value, err := r.vars.substitute(s.text)
		if err != nil {
			r.problem(fmt.Errorf("%s is %s, which %w (%s)", path, s.written(), err, s.source))
			return
		}
		r.problem(use(s, value))
	})
}

// connectionName reads the name of a storage connection. An empty one is as
// good as none.
func (r *settingReader) connectionName(path string, use func(string)) {
	r.resolved(path, func(_ setting, name string) error {
		if name = strings.TrimSpace(name); name != "" {
			use(name)
		}
		return nil
	})
}

// wrongValue is [setting.wrong] for a value that came of substitution.
func (s setting) wrongValue(path, value, must string) error {
	if value == s.text {
		return s.wrong(path, must)
	}
	return fmt.Errorf("%s is %s, which stands for %q, must be %s (%s)", path, s.written(), value, must, s.source)
}

// whole reads a whole number from low to high. As in .NET configuration, where
// every value is text, a string of digits is one too.
func (r *settingReader) whole(path string, low, high int, use func(int)) {
	s, ok := r.find(path)
	if !ok {
		return
	}
	n, err := strconv.Atoi(strings.TrimSpace(s.text))
	if err != nil || n < low || n > high || s.kind != kindNumber && s.kind != kindString {
		r.problem(s.wrong(path, wholeRange(low, high)))
		return
	}
	use(n)
}

// boolean reads true or false, in any case, as JSON or as text.
func (r *settingReader) boolean(path string, use func(bool)) {
	s, ok := r.find(path)
	if !ok {
		return
	}
	switch text := strings.ToLower(strings.TrimSpace(s.text)); {
	case s.kind != kindBool && s.kind != kindString, text != "true" && text != "false":
		r.problem(s.wrong(path, "true or false"))
	default:
		use(text == "true")
	}
}

// choice reads one of names, in any case, and passes its index on.
func (r *settingReader) choice(path string, names []string, use func(int)) {
	s, ok := r.find(path)
	if !ok {
		return
	}
	for i, name := range names {
		if s.kind == kindString && strings.EqualFold(strings.TrimSpace(s.text), name) {
			use(i)
			return
		}
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	r.problem(s.wrong(path, strings.Join(quoted, " or ")))
}

// span reads a time span from low to high.
func (r *settingReader) span(path string, low, high time.Duration, use func(time.Duration)) {
	s, ok := r.find(path)
	if !ok {
		return
	}
	d, err := parseTimeSpan(s.text)
	if err != nil || d < low || d > high || s.kind != kindString {
		r.problem(s.wrong(path, spanRange(low, high)))
		return
	}
	use(d)
}
