package durable

import (
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"strings"
)

// byFunction knows Go functions by their code, and closures by the function
// literal that makes them: where the compiler puts the function that a literal
// is in into others, each has code of its own for the literal.
type byFunction[V any] map[goFunction]V

// A goFunction is the identity of a function: its code or its literal. Instances of one generic function can have the same code.
type goFunction struct {
	signature reflect.Type
	code      uintptr
	literal   string
}

// put makes v what is known of fn.
func (m byFunction[V]) put(fn reflect.Value, v V) {
	f := goFunction{signature: fn.Type(), code: fn.Pointer()}
	m[f] = v
	if f.literal = literalOf(f.code); f.literal != "" {
		f.code = 0
		m[f] = v
	}
}

// get returns what is known of fn.
func (m byFunction[V]) get(fn reflect.Value) (v V, ok bool) {
	f := goFunction{signature: fn.Type(), code: fn.Pointer()}
	if v, ok = m[f]; ok {
		return v, true
	}
	if f.literal = literalOf(f.code); f.literal != "" {
		f.code = 0
		v, ok = m[f]
	}
	return v, ok
}

// oneLiteral says which closures are one function, for messages.
const oneLiteral = "closures of one function literal are one function, and so are those of literals that begin in one line"

// closure is part of the names that the compiler gives to the code of function
// literals. In other literals they have nothing but numbers.
var (
	closure          = regexp.MustCompile(`\.func[0-9]`)
	closureInGeneric = regexp.MustCompile(`\]\.(func)?[0-9]`)
)

// literalOf returns in which line the function literal begins whose code is at pc,
// empty if it is no function literal's.
func literalOf(pc uintptr) string {
	f := frameOf(pc)
	if !closure.MatchString(f.Function) {
		return ""
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

// frameOf returns where the code at pc is. What was put into it from elsewhere
// does not count.
func frameOf(pc uintptr) runtime.Frame {
	frames := runtime.CallersFrames([]uintptr{pc + 1})
	for {
		if f, more := frames.Next(); !more {
			return f
		}
	}
}

// symbolOf returns Go's name of the function whose code is at pc.
func symbolOf(pc uintptr) string {
	if f := frameOf(pc); f.Function != "" {
		return strings.TrimSuffix(f.Function, "-fm")
	}
	return "at an unknown address"
}

// isGeneric reports whether a symbol is an instance of a generic function or
// a method of a generic type. Its code is not the same wherever it is named. A
// closure in such a function is like any other.
func isGeneric(symbol string) bool {
	return strings.Contains(symbol, "[...]") && !closureInGeneric.MatchString(symbol)
}
