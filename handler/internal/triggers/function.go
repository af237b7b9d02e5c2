package triggers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Function is a function of the host: what its function.json says, and how long it
// may run.
type Function struct {
	Name     string        // the function's, and its folder's
	Source   Binding       // its trigger
	Bindings []Binding     // its inputs and outputs
	Retry    *RetryPolicy  // nil: none
	Timeout  time.Duration // 0: the app's

	problems []error
}

// Problem notes something that is wrong with the function.
func (f *Function) Problem(err error) { f.problems = append(f.problems, err) }

// Require notes that a value is missing without which there is no trigger.
func (f *Function) Require(what, value string) {
	if value == "" {
		f.Problem(fmt.Errorf("function %q has no %s", f.Name, what))
	}
}

// all returns the trigger and the other bindings.
func (f *Function) all() []Binding { return append([]Binding{f.Source}, f.Bindings...) }

// check returns all that is wrong with one function.
func (f *Function) check() []error {
	if f.Source.Kind == "" && f.Source.Name == "" {
		return []error{errors.New("a zero handler.Trigger is no function: make it with handler.Timer, handler.Queue and the like")}
	}
	problems := slices.Clone(f.problems)
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("function %q "+format, append([]any{f.Name}, args...)...))
	}
	if !functionNames.MatchString(f.Name) || strings.EqualFold(f.Name, "host") {
		add("has a name that the host does not accept: a letter and up to 127 letters, digits, - and _, and not \"host\"")
	}
	if f.Timeout < 0 {
		add("has a negative timeout")
	}
	kind := f.Source.Kind
	switch {
	case strings.EqualFold(kind, "httpTrigger"):
		add("has an httpTrigger: add a route in App.Routes instead, which may stream and answer in any form")
	case !strings.HasSuffix(strings.ToLower(kind), "trigger"):
		add("has the trigger %q: the type of a trigger ends in Trigger", kind)
	}
	names := map[string]bool{}
	for _, b := range f.all() {
		for _, problem := range b.check() {
			add("%w", problem)
		}
		if names[strings.ToLower(b.Name)] {
			add("has two bindings %q", b.Name)
		}
		names[strings.ToLower(b.Name)] = true
	}
	return problems
}

// bundled returns the type of a binding that an extension bundle must bring,
// "" if there is none.
func (f *Function) bundled() string {
	for _, b := range f.all() {
		if !slices.Contains(builtInKinds, strings.ToLower(b.Kind)) {
			return b.Kind
		}
	}
	return ""
}

// json returns the function's function.json: the same for the same function, so that a
// file that is up to date stays untouched. Writing one restarts the host.
func (f *Function) json() ([]byte, error) {
	var bindings []json.RawMessage
	for _, b := range f.all() {
		text, err := b.json()
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Name, err)
		}
		bindings = append(bindings, text)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		GeneratedBy string            `json:"generatedBy"`
		Bindings    []json.RawMessage `json:"bindings"`
		Retry       *RetryPolicy      `json:"retry,omitempty"`
	}{generatedBy, bindings, f.Retry})
	return out.Bytes(), err
}

// A RetryPolicy is the "retry" of a function.json.
type RetryPolicy struct {
	Strategy        string `json:"strategy"`
	MaxRetryCount   int    `json:"maxRetryCount"`
	DelayInterval   string `json:"delayInterval,omitempty"`
	MinimumInterval string `json:"minimumInterval,omitempty"`
	MaximumInterval string `json:"maximumInterval,omitempty"`
}

// Check returns all that is wrong with an app's functions.
func Check(functions []*Function) error {
	var problems []error
	seen := map[string]string{}
	for _, f := range functions {
		if other, ok := seen[strings.ToLower(f.Name)]; ok {
			problems = append(problems, fmt.Errorf("functions %q and %q have the same name: case does not matter", other, f.Name))
		}
		seen[strings.ToLower(f.Name)] = f.Name
		problems = append(problems, f.check()...)
	}
	return errors.Join(problems...)
}
