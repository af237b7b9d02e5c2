package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// Names and values of function.json that the host accepts
// (azure-functions-host: Utility.cs, Description/FunctionDescriptorProvider.cs).
var (
	functionNames = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)
	bindingNames  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,127}$`)
	queueNames    = regexp.MustCompile(`^[0-9a-z][a-z0-9-]{1,61}[0-9a-z]$`)
	cronFields    = regexp.MustCompile(`^[0-9A-Za-z*,/-]+$`)
)

// builtInKinds are the types of bindings that the host knows by itself. All
// others come from an extension bundle
// (azure-functions-host: ScriptHostBuilderExtensions.cs).
var builtInKinds = []string{"httptrigger", "http", "timertrigger", "warmuptrigger", "manualtrigger"}

// durableKinds are the types of the Durable Task extension.
var durableKinds = []string{"orchestrationtrigger", "activitytrigger", "entitytrigger", "durableclient", "orchestrationclient"}

// connectedKinds are triggers and outputs that have no connection by default.
var connectedKinds = []string{"servicebustrigger", "servicebus", "eventhubtrigger", "eventhub", "cosmosdbtrigger", "cosmosdb"}

// checkTriggers returns all that is wrong with an app's functions.
func checkTriggers(triggers []Trigger) error {
	var problems []error
	seen := map[string]string{}
	for _, t := range triggers {
		if other, ok := seen[strings.ToLower(t.name)]; ok {
			problems = append(problems, fmt.Errorf("functions %q and %q have the same name: case does not matter", other, t.name))
		}
		seen[strings.ToLower(t.name)] = t.name
		problems = append(problems, t.check()...)
	}
	return errors.Join(problems...)
}

// check returns all that is wrong with one function.
func (t Trigger) check() []error {
	if t.run == nil {
		return []error{errors.New("a zero handler.Trigger is no function: make it with handler.Timer, handler.Queue and the like")}
	}
	problems := slices.Clone(t.problems)
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("function %q "+format, append([]any{t.name}, args...)...))
	}
	if !functionNames.MatchString(t.name) || strings.EqualFold(t.name, "host") {
		add("has a name that the host does not accept: a letter and up to 127 letters, digits, - and _, and not \"host\"")
	}
	if t.timeout < 0 {
		add("has a negative timeout")
	}
	kind := t.source.kind
	switch {
	case strings.EqualFold(kind, "httpTrigger"):
		add("has an httpTrigger: add a route in App.Routes instead, which may stream and answer in any form")
	case !strings.HasSuffix(strings.ToLower(kind), "trigger"):
		add("has the trigger %q: the type of a trigger ends in Trigger", kind)
	}
	names := map[string]bool{}
	for _, b := range append([]binding{t.source}, t.bindings...) {
		for _, problem := range b.check() {
			add("%w", problem)
		}
		if names[strings.ToLower(b.name)] {
			add("has two bindings %q", b.name)
		}
		names[strings.ToLower(b.name)] = true
	}
	return problems
}

// check returns all that is wrong with one binding.
func (b binding) check() (problems []error) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	kind := strings.ToLower(b.kind)
	if !bindingNames.MatchString(b.name) && (b.name != returnName || !b.out) {
		add("has the binding %q: a name is a letter and up to 127 letters and digits, or $return for an output", b.name)
	}
	if b.kind == "" {
		add("has the binding %q without a type", b.name)
	}
	if slices.Contains(durableKinds, kind) {
		add("has a %s: with it the Durable Task extension would start in the host, and two engines would work on one task hub. "+
			"Register orchestrators, activities and entities in App.Functions; they need no function.json. "+
			"Every function has the client as Invocation.Client", b.kind)
	}
	if slices.Contains(connectedKinds, kind) && b.properties["connection"] == nil {
		add("has the binding %q, a %s without a connection: add handler.Connection with the name of a setting", b.name, b.kind)
	}
	if name, ok := b.properties["queueName"].(string); ok && strings.HasPrefix(kind, "queue") && !isPattern(name) && !queueNames.MatchString(name) {
		add("has the queue %q: a name is 3 to 63 lower-case letters, digits and single -", name)
	}
	if schedule, ok := b.properties["schedule"].(string); ok && kind == "timertrigger" && !isPattern(schedule) && !isSchedule(schedule) {
		add("has the schedule %q: it must be six fields, as \"0 30 2 * * *\", an interval, as \"00:05:00\", or a setting, as \"%%SCHEDULE%%\"", schedule)
	}
	for name, value := range b.properties {
		if slices.Contains([]string{"type", "direction", "name"}, strings.ToLower(name)) {
			add("has the binding %q with a property %q, which cannot be set", b.name, name)
		}
		if _, err := json.Marshal(value); err != nil {
			add("has the binding %q with a property %q that JSON cannot tell: %w", b.name, name, err)
		}
	}
	return problems
}

// isPattern reports whether the host puts something else in a value's place.
func isPattern(value string) bool { return strings.ContainsAny(value, "%{") }

// isSchedule reports whether the host could take text for the schedule of a
// timer: five or six fields of a crontab, or an interval.
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

// needsBundle returns the type of a binding that an extension bundle must bring,
// "" if there is none.
func (t Trigger) needsBundle() string {
	for _, b := range append([]binding{t.source}, t.bindings...) {
		if !slices.Contains(builtInKinds, strings.ToLower(b.kind)) {
			return b.kind
		}
	}
	return ""
}
