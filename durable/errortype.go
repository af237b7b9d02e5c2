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

// ErrorType gives an error type its wire name in a [Registry]. If an activity, a step
// or a sub-orchestration returns such an error, errors.As finds it in the
// [TaskFailedError] that the caller gets. The JSON encoding of the error, such as its
// exported fields, is preserved.
//
//	type LimitError struct{ Limit int }
//
//	durable.ErrorType[*LimitError]("LimitError")
//
// The name is the error type of the failure on the wire. The fields are its properties,
// as from .NET's exception properties provider. Programs in other languages can read
// them and return such failures themselves.
//
// ErrorType panics if the name is empty or E is an interface.
func ErrorType[E error](name string) *Registration {
	t := reflect.TypeFor[E]()
	if t.Kind() == reflect.Interface {
		panic(fmt.Sprintf("durable: error %q: %v is an interface; use a concrete type", name, t))
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

// ErrorValue gives an error value, such as a package's ErrNotFound, its wire name in a
// [Registry]. If an activity, a step or a sub-orchestration returns the error,
// errors.Is finds it in the [TaskFailedError] that the caller gets. An error whose Is
// method reports a match counts too. For example, errors of package os match
// fs.ErrNotExist.
//
// ErrorValue panics if the name is empty, or if the error is nil or not comparable.
func ErrorValue(name string, err error) *Registration {
	if err == nil || !reflect.TypeOf(err).Comparable() {
		panic(fmt.Sprintf("durable: error %q: %#v is nil or not comparable", name, err))
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

func newError(n *namedError, symbol string) *Registration {
	if strings.TrimSpace(n.name) == "" {
		panic(fmt.Sprintf("durable: error %s has no name", symbol))
	}
	return &Registration{kind: errorKind, name: n.name, symbol: symbol, failure: n}
}

// namedError is an error value or an error type that has a wire name.
type namedError struct {
	name       string
	matches    func(error) bool                                   // reports a match of this error, without the errors that it wraps
	recover    func(*history.FailureDetails) (err error, ok bool) // decodes a failure that has the name
	properties bool                                               // the failure has properties in addition to the name
}

// builtInErrors have names without registration.
var builtInErrors = []*namedError{
	ErrorValue("durable.ErrTimeout", ErrTimeout).failure,
	ErrorValue("context.Canceled", context.Canceled).failure,
	ErrorValue("context.DeadlineExceeded", context.DeadlineExceeded).failure,
	ErrorValue(provider.OutcomeUnknownFailure, ErrOutcomeUnknown).failure,
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

// engineError returns the entry of an error that the engine uses to fail instances. It
// never matches an error that a function returns: only the engine writes its name.
func engineError(name string, of func(message string) error) *namedError {
	return &namedError{
		name:    name,
		matches: func(error) bool { return false },
		recover: func(f *history.FailureDetails) (error, bool) { return of(f.ErrorMessage), true },
	}
}

// namedErrors are the errors of a registry, in the order of registration.
type namedErrors []*namedError

// recordedError is one error of an error tree that is recorded in the history.
type recordedError struct {
	err   error
	named *namedError             // nil for the failure of a task
	task  *history.FailureDetails // set for the failure of a task
}

// recorded returns the errors of err's tree that histories record, in the order of
// errors.Is: named errors, and failures of tasks including everything that they wrap.
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
		for _, known := range []namedErrors{registered, builtInErrors, httpErrors} {
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

// failure returns the failure that represents e in the history.
func (e recordedError) failure() *history.FailureDetails {
	if e.task != nil {
		return new(*e.task)
	}
	f := e.named.fill(e.err, replay.FailureOf(e.err))
	f.InnerFailure = nil // the wrapped errors have their own entries
	return f
}

// fill sets the name and the properties of err in d.
func (n *namedError) fill(err error, d *history.FailureDetails) *history.FailureDetails {
	d.ErrorType = n.name
	if n.properties {
		d.Properties = propertiesOf(err)
	}
	return d
}

// maxRecorded is the maximum number of recorded errors of a tree.
const maxRecorded = 8

// describe returns err, the error of a function, wrapped with the failure that
// histories record.
func (registered namedErrors) describe(err error) error {
	if err == nil {
		return nil
	}
	err = replay.LimitDepth(err)
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

// chained links the failures of all into one chain: each failure is the innermost
// failure of the previous one. Equal failures are included once.
func chained(all []recordedError) *history.FailureDetails {
	var first *history.FailureDetails
	seen, length := map[string]bool{}, 0
	end := &first
	for _, e := range all {
		f := e.failure()
		key := fmt.Sprint(f, f.Properties)
		if seen[key] || len(seen) == maxRecorded || length == replay.MaxInner {
			continue
		}
		seen[key] = true
		for *end = f; *end != nil; end = &(*end).InnerFailure {
			if length++; length == replay.MaxInner {
				(*end).InnerFailure = nil
			}
			if (*end).InnerFailure != nil {
				(*end).InnerFailure = new(*(*end).InnerFailure) // copy it: it belongs to another event
			}
		}
	}
	return first
}

// describedError is an error with the failure that histories record.
type describedError struct {
	error
	failure *history.FailureDetails
}

func (e *describedError) Unwrap() error                    { return e.error }
func (e *describedError) Failure() *history.FailureDetails { return e.failure }

// valueProperty is the name of the property that contains the JSON of an error that is
// not a JSON object.
const valueProperty = "value"

// propertiesOf returns the JSON members of err, or its single JSON value. It returns
// nil if err cannot be encoded, so that the error itself is still recorded.
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

// propertiesJSON rebuilds the JSON of an error of type t from the properties of a
// failure.
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
		return nil // a property is not JSON; decoding fails
	}
	return text
}

// hasMembers reports whether encoding/json encodes values of type t as objects of their
// fields.
func hasMembers(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !t.Implements(reflect.TypeFor[json.Marshaler]()) &&
		!reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}

// causesOf returns the causes of a failure: the error that has its name, and its inner
// failure.
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
	for _, all := range []namedErrors{registered, builtInErrors, httpErrors} {
		for _, n := range all {
			if n.name == f.ErrorType {
				return n.recover(f)
			}
		}
	}
	return nil, false
}

// innerError is a failure that caused another failure.
type innerError struct {
	failure *history.FailureDetails
	causes  []error
}

func (e *innerError) Error() string   { return e.failure.ErrorMessage }
func (e *innerError) Unwrap() []error { return e.causes }
