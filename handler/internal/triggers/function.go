package triggers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// A Function is a function of the host: the content of its function.json, and its time limit.
type Function struct {
	Name     string        // name of the function and of its folder
	Source   Binding       // the trigger
	Bindings []Binding     // inputs and outputs
	Retry    *RetryPolicy  // nil for no retries
	Timeout  time.Duration // 0 for the app's default

	problems []error
}

// Problem records a problem of the function.
func (f *Function) Problem(err error) { f.problems = append(f.problems, err) }

// Require records a problem if value is "".
func (f *Function) Require(what, value string) {
	if value == "" {
		f.Problem(fmt.Errorf("function %q has no %s", f.Name, what))
	}
}

// all returns all bindings, the trigger first.
func (f *Function) all() []Binding { return append([]Binding{f.Source}, f.Bindings...) }

// check returns all problems of the function.
func (f *Function) check() []error {
	if f.Source.Kind == "" && f.Source.Name == "" {
		return []error{errors.New("a zero handler.Trigger is not a function: create it with a function such as handler.Timer or handler.Queue")}
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

// bundled returns the type of a binding that needs an extension bundle, or "".
func (f *Function) bundled() string {
	for _, b := range f.all() {
		if !slices.Contains(builtInKinds, strings.ToLower(b.Kind)) {
			return b.Kind
		}
	}
	return ""
}

// json returns the content of the function.json. It is deterministic, so that a file that is up to date
// is not rewritten: a write restarts the host.
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

// A RetryPolicy is the member "retry" of a function.json.
type RetryPolicy struct {
	Strategy        string `json:"strategy"`
	MaxRetryCount   int    `json:"maxRetryCount"`
	DelayInterval   string `json:"delayInterval,omitempty"`
	MinimumInterval string `json:"minimumInterval,omitempty"`
	MaximumInterval string `json:"maximumInterval,omitempty"`
}

// Check returns all problems of an app's functions.
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

// Properties holds the properties of a binding that depend on its type.
type Properties map[string]any

// A Binding is an entry of a function.json.
type Binding struct {
	Kind       string // type, such as "queueTrigger"
	Name       string
	Out        bool
	Properties Properties
}

// Set sets a property.
func (b *Binding) Set(name string, value any) {
	if b.Properties == nil {
		b.Properties = Properties{}
	}
	b.Properties[name] = value
}

// ReturnName is the name of the output for a function's return value.
const ReturnName = "$return"

// Names and values in function.json that the host accepts (azure-functions-host: Utility.cs,
// Description/FunctionDescriptorProvider.cs).
var (
	functionNames = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)
	bindingNames  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,127}$`)
	queueNames    = regexp.MustCompile(`^[0-9a-z][a-z0-9-]{1,61}[0-9a-z]$`)
	cronFields    = regexp.MustCompile(`^[0-9A-Za-z*,/-]+$`)
)

// builtInKinds lists the binding types that need no extension bundle (azure-functions-host:
// ScriptHostBuilderExtensions.cs).
var builtInKinds = []string{"httptrigger", "http", "timertrigger", "warmuptrigger", "manualtrigger"}

// durableKinds lists the binding types of the Durable Task extension.
var durableKinds = []string{"orchestrationtrigger", "activitytrigger", "entitytrigger", "durableclient", "orchestrationclient"}

// connectedKinds lists the binding types that have no default connection.
var connectedKinds = []string{"servicebustrigger", "servicebus", "eventhubtrigger", "eventhub", "cosmosdbtrigger", "cosmosdb"}

// check returns all problems of the binding.
func (b Binding) check() (problems []error) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	kind := strings.ToLower(b.Kind)
	if !bindingNames.MatchString(b.Name) && (b.Name != ReturnName || !b.Out) {
		add("has the binding %q: a name is a letter and up to 127 letters and digits, or $return for an output", b.Name)
	}
	if b.Kind == "" {
		add("has the binding %q without a type", b.Name)
	}
	if slices.Contains(durableKinds, kind) {
		add("has a %s: with it the Durable Task extension would start in the host, and two engines would work on one task hub. "+
			"Register orchestrators, activities and entities in App.Registrations; they need no function.json. "+
			"Every function has the client as Invocation.Client", b.Kind)
	}
	if slices.Contains(connectedKinds, kind) && b.Properties["connection"] == nil {
		add("has the binding %q, a %s without a connection: add handler.Connection with the name of a setting", b.Name, b.Kind)
	}
	if name, ok := b.Properties["queueName"].(string); ok && strings.HasPrefix(kind, "queue") && !isPattern(name) && !queueNames.MatchString(name) {
		add("has the queue %q: a name is 3 to 63 lower-case letters, digits and single -", name)
	}
	if schedule, ok := b.Properties["schedule"].(string); ok && kind == "timertrigger" && !isPattern(schedule) && !isSchedule(schedule) {
		add("has the schedule %q: it must be six fields, as \"0 30 2 * * *\", an interval, as \"00:05:00\", or a setting, as \"%%SCHEDULE%%\"", schedule)
	}
	for name, value := range b.Properties {
		if slices.Contains([]string{"type", "direction", "name"}, strings.ToLower(name)) {
			add("has the binding %q with a property %q, which cannot be set", b.Name, name)
		}
		if _, err := json.Marshal(value); err != nil {
			add("has the binding %q with a property %q that cannot be encoded as JSON: %w", b.Name, name, err)
		}
	}
	return problems
}

// json returns the binding as JSON: type, direction and name, then its properties sorted by name.
func (b Binding) json() (json.RawMessage, error) {
	direction := "in"
	if b.Out {
		direction = "out"
	}
	var out bytes.Buffer
	member := func(name string, value any) error {
		text, err := jsontext.Marshal(value)
		if err != nil {
			return fmt.Errorf("property %s of binding %s: %w", name, b.Name, err)
		}
		separator := ","
		if out.Len() == 0 {
			separator = "{"
		}
		fmt.Fprintf(&out, "%s%s:%s", separator, jsontext.Quote(name), text)
		return nil
	}
	for _, m := range [][2]string{{"type", b.Kind}, {"direction", direction}, {"name", b.Name}} {
		if err := member(m[0], m[1]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Properties)) {
		if err := member(name, b.Properties[name]); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// isPattern reports whether the host replaces parts of value with settings or with parts of the
// trigger.
func isPattern(value string) bool { return strings.ContainsAny(value, "%{") }

// isSchedule reports whether text may be the schedule of a timer: five or six cron fields, or an
// interval.
func isSchedule(text string) bool {
	if d, err := settings.ParseTimeSpan(text); err == nil {
		return d > 0
	}
	fields := strings.Fields(text)
	for _, field := range fields {
		if !cronFields.MatchString(field) {
			return false
		}
	}
	return len(fields) == 5 || len(fields) == 6
}
