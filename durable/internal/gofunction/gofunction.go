// Package gofunction identifies Go functions by their code, and closures by their function
// literal.
package gofunction

import (
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"strings"
)

// Map maps Go functions to values. It identifies functions by their code, and
// closures by their function literal: if the compiler inlines the enclosing function,
// each copy has separate code for the literal.
type Map[V any] map[function]V

// function identifies a function by its code or its literal. Instances of one generic
// function may share code.
type function struct {
	signature reflect.Type
	code      uintptr
	literal   string
}

// Put sets the value of fn.
func (m Map[V]) Put(fn reflect.Value, v V) {
	f := function{signature: fn.Type(), code: fn.Pointer()}
	m[f] = v
	if f.literal = literalOf(f.code); f.literal != "" {
		f.code = 0
		m[f] = v
	}
}

// Get returns the value of fn.
func (m Map[V]) Get(fn reflect.Value) (v V, ok bool) {
	f := function{signature: fn.Type(), code: fn.Pointer()}
	if v, ok = m[f]; ok {
		return v, true
	}
	if f.literal = literalOf(f.code); f.literal != "" {
		f.code = 0
		v, ok = m[f]
	}
	return v, ok
}

// ClosureIdentity explains in messages which closures count as one function.
const ClosureIdentity = "closures of one function literal count as one function, as do literals that start on the same line"

// closure and closureInGeneric match the names of function literals in the symbol
// table. A literal inside another literal has only numbers in its name.
var (
	closure          = regexp.MustCompile(`\.func[0-9]`)
	closureInGeneric = regexp.MustCompile(`\]\.(func)?[0-9]`)
)

// literalOf returns the file and line of the function literal whose code is at pc. It
// is empty for other functions.
func literalOf(pc uintptr) string {
	f := frameOf(pc)
	if !closure.MatchString(f.Function) {
		return ""
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

// frameOf returns the frame of the function whose code is at pc. Frames that are
// inlined at pc are ignored.
func frameOf(pc uintptr) runtime.Frame {
	frames := runtime.CallersFrames([]uintptr{pc + 1})
	for {
		if f, more := frames.Next(); !more {
			return f
		}
	}
}

// Symbol returns the symbol of the function whose code is at pc.
func Symbol(pc uintptr) string {
	if f := frameOf(pc); f.Function != "" {
		return strings.TrimSuffix(f.Function, "-fm")
	}
	return "at an unknown address"
}

// IsGeneric reports whether a symbol is an instance of a generic function or a method
// of a generic type. The code of such a function differs between references to it. A
// closure in such a function is an ordinary closure.
func IsGeneric(symbol string) bool {
	return strings.Contains(symbol, "[...]") && !closureInGeneric.MatchString(symbol)
}
