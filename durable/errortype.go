package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// ErrorType gives a type of errors the name that it has on the wire, so that
// such an error survives the way from an activity or a sub-orchestration to the
// orchestrator that called it: errors.As finds it in the [TaskFailedError]. What
// of it is JSON is kept, such as its exported fields.
//
//	type LimitError struct{ Limit int }
//
//	durable.ErrorType[*LimitError]("LimitError")
//
// On the wire the name is the failure's type, and the fields are its properties,
// as .NET's exception properties provider has it: a program in another language
// can branch on them, and return such failures itself.
//
// It panics if there is no name or E is an interface.
func ErrorType[E error](name string) *Function {
	t := reflect.TypeFor[E]()
	if t.Kind() == reflect.Interface {
		panic(fmt.Sprintf("durable: error %q was given for %v, which is an interface; it must be for one type", name, t))
	}
	return newError(&namedError{
		name:    name,
		matches: func(err error) bool { return reflect.TypeOf(err) == t },
		recover: func(f *history.FailureDetails) (error, bool) {
			var e E
			if err := json.Unmarshal(propertiesJSON(f, t), &e); err != nil {
				return nil, false
			}
			return e, true
		},
		properties: true,
	}, t.String())
}

// ErrorValue gives an error value, such as a package's ErrNotFound, the name
// that it has on the wire, so that errors.Is finds it in the [TaskFailedError]
// of an orchestrator whose activity or sub-orchestration returned it, or returned
// an error that is it by its Is method, as the errors of package os are
// fs.ErrNotExist.
//
// It panics if there is no name or no error, or if the error cannot be compared.
func ErrorValue(name string, err error) *Function {
	if err == nil || !reflect.TypeOf(err).Comparable() {
		panic(fmt.Sprintf("durable: error %q was given for %#v, which is nil or cannot be compared", name, err))
	}
	return newError(&namedError{
		name: name,
		matches: func(other error) bool {
			if reflect.TypeOf(other).Comparable() && other == err { //nolint:errorlint // the chain is walked elsewhere
				return true
			}
			is, ok := other.(interface{ Is(target error) bool }) //nolint:errorlint // the chain is walked elsewhere
			return ok && is.Is(err)
		},
		recover: func(*history.FailureDetails) (error, bool) { return err, true },
	}, fmt.Sprintf("%q", err))
}

func newError(n *namedError, symbol string) *Function {
	if strings.TrimSpace(n.name) == "" {
		panic(fmt.Sprintf("durable: error %s was given no name", symbol))
	}
	return &Function{kind: errorKind, name: n.name, symbol: symbol, failure: n}
}

// A namedError is an error, or a type of errors, that has a name on the wire.
type namedError struct {
	name       string
	matches    func(error) bool                                   // this very error, not what it wraps
	recover    func(*history.FailureDetails) (err error, ok bool) // of a failure with the name
	properties bool                                               // the error has more to it than its name
}

// knownErrors have their names without being registered.
var knownErrors = []*namedError{
	ErrorValue("durable.ErrTimeout", ErrTimeout).failure,
	ErrorValue("context.Canceled", context.Canceled).failure,
	ErrorValue("context.DeadlineExceeded", context.DeadlineExceeded).failure,
	ErrorType[*OperationNotFoundError]("durable.OperationNotFoundError").failure,
	engineError("*durable.NonDeterminismError", func(message string) error { return &NonDeterminismError{message} }),
	engineError("*durable.UsageError", func(message string) error { return &UsageError{message} }),
	{
		name: provider.InstanceExistsFailure,
		matches: func(err error) bool {
			_, ok := err.(*provider.InstanceExistsError) //nolint:errorlint // the chain is walked elsewhere
			return ok
		},
		recover: func(f *history.FailureDetails) (error, bool) {
			var e provider.InstanceExistsError
			err := json.Unmarshal(propertiesJSON(f, reflect.TypeFor[provider.InstanceExistsError]()), &e)
			return &e, err == nil
		},
		properties: true,
	},
}

// engineError is an error with which the engine fails instances. It is no function's to
// return: histories have its name from the engine only.
func engineError(name string, of func(message string) error) *namedError {
	return &namedError{
		name:    name,
		matches: func(error) bool { return false },
		recover: func(f *history.FailureDetails) (error, bool) { return of(f.ErrorMessage), true },
	}
}

// namedErrors are the errors of a registry, in the order in which they were added.
type namedErrors []*namedError

// A recordedError is an error of a tree that is recorded in histories.
type recordedError struct {
	err   error
	named *namedError             // nil for the failure of a task
	task  *history.FailureDetails // of a task that failed
}

// recorded returns what histories record of err and of what it wraps, in the order of
// errors.Is: errors with names, and failures of tasks with all that they wrap.
func (registered namedErrors) recorded(err error) []recordedError {
	var all []recordedError
	var walk func(error)
	walk = func(err error) {
		if err == nil {
			return
		}
		if task, ok := err.(*TaskFailedError); ok { //nolint:errorlint // the tree is walked here
			all = append(all, recordedError{err: err, task: task.FailureDetails()})
			return
		}
		for _, known := range []namedErrors{registered, knownErrors, httpErrors} {
			for _, n := range known {
				if n.matches(err) {
					all = append(all, recordedError{err: err, named: n})
				}
			}
		}
		switch e := err.(type) { //nolint:errorlint // the tree is walked here
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		}
	}
	walk(err)
	return all
}

// failure returns the failure that records e.
func (e recordedError) failure() *history.FailureDetails {
	if e.task != nil {
		return new(*e.task)
	}
	f := e.named.fill(e.err, replay.FailureOf(e.err))
	f.InnerFailure = nil // what it wraps is recorded by itself
	return f
}

// fill puts the name and the properties of err into d.
func (n *namedError) fill(err error, d *history.FailureDetails) *history.FailureDetails {
	d.ErrorType = n.name
	if n.properties {
		d.Properties = propertiesOf(err)
	}
	return d
}

// maxRecorded bounds how many errors of a tree are recorded, and maxChained how many
// failures those are with their inner ones. Each is the inner failure of the one before,
// since a failure has one at most, and .NET reads no JSON that is nested more than 64 deep (Newtonsoft.Json, JsonReader.MaxDepth).
const (
	maxRecorded = 8
	maxChained  = 32
)

// describe returns err, which a function returned, as an error that carries the failure
// for histories.
func (registered namedErrors) describe(err error) error {
	if err == nil {
		return nil
	}
	all := registered.recorded(err)
	marked := isNonRetryable(err)
	first := slices.IndexFunc(all, func(e recordedError) bool { return e.named != nil })
	if first < 0 && !marked && len(all) < 2 {
		return err
	}
	d := replay.FailureOf(err)
	d.IsNonRetriable = d.IsNonRetriable || marked
	if first >= 0 {
		all[first].named.fill(all[first].err, d)
		all = slices.Delete(all, first, first+1)
	}
	if len(all) > 0 {
		d.InnerFailure = chained(all)
	}
	return &describedError{err, d}
}

// chained returns the failures that record all, each the inner failure of the last
// of the one before. The same failure is recorded once.
func chained(all []recordedError) *history.FailureDetails {
	var first *history.FailureDetails
	seen, length := map[string]bool{}, 0
	end := &first
	for _, e := range all {
		f := e.failure()
		key := fmt.Sprint(f, f.Properties)
		if seen[key] || len(seen) == maxRecorded || length == maxChained {
			continue
		}
		seen[key] = true
		for *end = f; *end != nil; end = &(*end).InnerFailure {
			if length++; length == maxChained {
				(*end).InnerFailure = nil
			}
			if (*end).InnerFailure != nil {
				(*end).InnerFailure = new(*(*end).InnerFailure) // it is another event's
			}
		}
	}
	return first
}

// A describedError is an error together with its failure in histories.
type describedError struct {
	error
	failure *history.FailureDetails
}

func (e *describedError) Unwrap() error                    { return e.error }
func (e *describedError) Failure() *history.FailureDetails { return e.failure }

// valueProperty has the JSON of an error that is no JSON object.
const valueProperty = "value"

// propertiesOf returns the JSON of err: the members of an object, or one value.
// What cannot be encoded is left out, since the error itself counts more.
func propertiesOf(err error) map[string]string {
	text, failed := json.Marshal(err)
	if failed != nil {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return map[string]string{valueProperty: string(text)}
	}
	properties := make(map[string]string, len(members))
	for name, value := range members {
		properties[name] = string(value)
	}
	return properties
}

// propertiesJSON returns the JSON that a failure's properties were made of, for
// a value of type t.
func propertiesJSON(f *history.FailureDetails, t reflect.Type) []byte {
	if value, ok := f.Properties[valueProperty]; ok && len(f.Properties) == 1 && !hasMembers(t) {
		return []byte(value)
	}
	members := make(map[string]json.RawMessage, len(f.Properties))
	for name, value := range f.Properties {
		members[name] = json.RawMessage(value)
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil // a property is no JSON: decoding fails
	}
	return text
}

// hasMembers reports whether values of type t are JSON objects by themselves.
func hasMembers(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !t.Implements(reflect.TypeFor[json.Marshaler]()) &&
		!reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}

// causesOf returns what can be made of a failure: the error that has its name,
// and its inner failure.
func (registered namedErrors) causesOf(f *history.FailureDetails) []error {
	var causes []error
	if err, ok := registered.recovered(f); ok {
		causes = append(causes, err)
	}
	if f.InnerFailure != nil {
		causes = append(causes, &innerError{f.InnerFailure, registered.causesOf(f.InnerFailure)})
	}
	return causes
}

func (registered namedErrors) recovered(f *history.FailureDetails) (error, bool) {
	for _, all := range []namedErrors{registered, knownErrors, httpErrors} {
		for _, n := range all {
			if n.name == f.ErrorType {
				return n.recover(f)
			}
		}
	}
	return nil, false
}

// An innerError is a failure that caused another.
type innerError struct {
	failure *history.FailureDetails
	causes  []error
}

func (e *innerError) Error() string   { return e.failure.ErrorMessage }
func (e *innerError) Unwrap() []error { return e.causes }
