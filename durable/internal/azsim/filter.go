package azsim

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// predicate reports whether an entity matches a filter.
type predicate func(*entity) bool

// parseFilter parses an OData filter: comparisons of columns and literals, and, or, not and
// parentheses. A comparison is false if the entity lacks the column or its type differs.
func parseFilter(text string) (predicate, error) {
	if strings.TrimSpace(text) == "" {
		return func(*entity) bool { return true }, nil
	}
	p := &filterParser{rest: text}
	f, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.skip(); p.rest != "" {
		return nil, fmt.Errorf("filter has %q after its end", p.rest)
	}
	return f, nil
}

type filterParser struct {
	rest string
}

func (p *filterParser) skip() { p.rest = strings.TrimLeft(p.rest, " \t") }

// word consumes a name or an operator and returns it. It returns "" before anything else.
func (p *filterParser) word() string {
	p.skip()
	n := 0
	for n < len(p.rest) && (p.rest[n] == '_' || p.rest[n] >= '0' && p.rest[n] <= '9' || p.rest[n]|0x20 >= 'a' && p.rest[n]|0x20 <= 'z') {
		n++
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

// accept consumes the given word if it is next.
func (p *filterParser) accept(word string) bool {
	before := p.rest
	if p.word() == word {
		return true
	}
	p.rest = before
	return false
}

func (p *filterParser) or() (predicate, error) {
	left, err := p.and()
	for err == nil && p.accept("or") {
		first := left
		var second predicate
		if second, err = p.and(); err == nil {
			left = func(e *entity) bool { return first(e) || second(e) }
		}
	}
	return left, err
}

func (p *filterParser) and() (predicate, error) {
	left, err := p.not()
	for err == nil && p.accept("and") {
		first := left
		var second predicate
		if second, err = p.not(); err == nil {
			left = func(e *entity) bool { return first(e) && second(e) }
		}
	}
	return left, err
}

func (p *filterParser) not() (predicate, error) {
	if p.accept("not") {
		f, err := p.not()
		if err != nil {
			return nil, err
		}
		return func(e *entity) bool { return !f(e) }, nil
	}
	p.skip()
	if strings.HasPrefix(p.rest, "(") {
		p.rest = p.rest[1:]
		f, err := p.or()
		if err != nil {
			return nil, err
		}
		p.skip()
		if !strings.HasPrefix(p.rest, ")") {
			return nil, errors.New("missing )")
		}
		p.rest = p.rest[1:]
		return f, nil
	}
	return p.comparison()
}

// operand is a column, or a literal if column is empty.
type operand struct {
	column string
	value  any
}

func (o operand) of(e *entity) (any, bool) {
	if o.column == "" {
		return o.value, true
	}
	return e.value(o.column)
}

func (p *filterParser) comparison() (predicate, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	rest := p.rest
	operator := p.word()
	holds, ok := map[string]func(int) bool{
		"eq": func(c int) bool { return c == 0 }, "ne": func(c int) bool { return c != 0 },
		"gt": func(c int) bool { return c > 0 }, "ge": func(c int) bool { return c >= 0 },
		"lt": func(c int) bool { return c < 0 }, "le": func(c int) bool { return c <= 0 },
	}[operator]
	if !ok {
		p.rest = rest
		if left.column != "" { // a boolean column
			return func(e *entity) bool { v, _ := left.of(e); return v == true }, nil
		}
		return nil, fmt.Errorf("%q is not a comparison operator", operator)
	}
	right, err := p.operand()
	if err != nil {
		return nil, err
	}
	return func(e *entity) bool {
		x, okX := left.of(e)
		y, okY := right.of(e)
		c, comparable := compareValues(x, y)
		return okX && okY && comparable && holds(c)
	}, nil
}

func (p *filterParser) operand() (operand, error) {
	p.skip()
	switch {
	case p.rest == "":
		return operand{}, errors.New("filter ends too early")
	case p.rest[0] == '\'':
		text, err := p.text()
		return operand{value: text}, err
	case p.rest[0] == '-' || p.rest[0] >= '0' && p.rest[0] <= '9':
		return p.number()
	}
	w := p.word()
	switch w {
	case "":
		return operand{}, fmt.Errorf("unexpected %q", p.rest)
	case "true", "false":
		return operand{value: w == "true"}, nil
	}
	if strings.HasPrefix(p.rest, "'") {
		return p.typed(w)
	}
	if strings.HasPrefix(p.rest, "(") {
		return operand{}, fmt.Errorf("function %s is not supported", w)
	}
	return operand{column: w}, nil
}

// text consumes a quoted text.
func (p *filterParser) text() (string, error) {
	end := endOfText(p.rest[1:])
	if end < 0 {
		return "", errors.New("missing closing apostrophe")
	}
	text := strings.ReplaceAll(p.rest[1:1+end], "''", "'")
	p.rest = p.rest[end+2:]
	return text, nil
}

// typed consumes the quoted part of a literal such as datetime'2026-01-02T03:04:05Z'.
func (p *filterParser) typed(prefix string) (operand, error) {
	text, err := p.text()
	if err != nil {
		return operand{}, err
	}
	switch prefix {
	case "datetime":
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.9999999", "2006-01-02"} {
			if t, err := time.Parse(layout, text); err == nil {
				return operand{value: t}, nil
			}
		}
		return operand{}, fmt.Errorf("%q is not a valid time", text)
	case "guid":
		return operand{value: text}, nil
	case "X", "x":
		b, err := hex.DecodeString(text)
		return operand{value: b}, err
	case "binary":
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			b, err = hex.DecodeString(text)
		}
		return operand{value: b}, err
	}
	return operand{}, fmt.Errorf("%q is not a literal type", prefix)
}

func (p *filterParser) number() (operand, error) {
	n := 1
	for n < len(p.rest) && strings.IndexByte("0123456789.eE+-", p.rest[n]) >= 0 {
		n++
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	for _, suffix := range []string{"L", "l"} {
		if rest, found := strings.CutPrefix(p.rest, suffix); found {
			p.rest = rest
		}
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return operand{value: i}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	return operand{value: f}, err
}

// compareValues compares two values; ok is false if their types differ.
func compareValues(x, y any) (c int, ok bool) {
	switch x := x.(type) {
	case string:
		y, ok := y.(string)
		return strings.Compare(x, y), ok
	case []byte:
		y, ok := y.([]byte)
		return strings.Compare(string(x), string(y)), ok
	case time.Time:
		y, ok := y.(time.Time)
		return x.Compare(y), ok
	case bool:
		y, ok := y.(bool)
		if x == y {
			return 0, ok
		}
		return 1, ok
	}
	fx, okX := asFloat(x)
	fy, okY := asFloat(y)
	switch {
	case !okX || !okY:
		return 0, false
	case fx < fy:
		return -1, true
	case fx > fy:
		return 1, true
	}
	return 0, true
}

func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
