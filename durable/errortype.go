package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
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
// of an orchestrator whose activity or sub-orchestration returned it.
//
// It panics if there is no name or no error, or if the error cannot be compared.
func ErrorValue(name string, err error) *Function {
	if err == nil || !reflect.TypeOf(err).Comparable() {
		panic(fmt.Sprintf("durable: error %q was given for %#v, which is nil or cannot be compared", name, err))
	}
	return newError(&namedError{
		name:    name,
		matches: func(other error) bool { return reflect.TypeOf(other).Comparable() && other == err }, //nolint:errorlint // the chain is walked elsewhere
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

// named returns what is known of this very error, nil if it has no name.
func (r *Registry) named(err error) *namedError {
	for _, all := range [][]*namedError{r.errors, knownErrors, httpErrors} {
		for _, n := range all {
			if n.matches(err) {
				return n
			}
		}
	}
	return nil
}

// describe returns err, which a function returned, as an error that says what
// histories are told of it.
func (r *Registry) describe(err error) error {
	if err == nil {
		return nil
	}
	var found *namedError
	var as error
	replay.Chain(err, func(err error) bool {
		if _, ok := err.(*TaskFailedError); ok { //nolint:errorlint // what it wraps is told by its inner failure
			return true
		}
		found, as = r.named(err), err
		return found != nil
	})
	marked := isNonRetryable(err)
	if found == nil && !marked {
		return err
	}
	d := replay.FailureOf(err)
	d.IsNonRetriable = d.IsNonRetriable || marked
	if found != nil {
		d.ErrorType = found.name
		if found.properties {
			d.Properties = propertiesOf(as)
		}
	}
	return &describedError{err, d}
}

// A describedError is an error together with what histories are told of it.
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
func (r *Registry) causesOf(f *history.FailureDetails) []error {
	var causes []error
	if err, ok := r.recovered(f); ok {
		causes = append(causes, err)
	}
	if f.InnerFailure != nil {
		causes = append(causes, &innerError{f.InnerFailure, r.causesOf(f.InnerFailure)})
	}
	return causes
}

func (r *Registry) recovered(f *history.FailureDetails) (error, bool) {
	for _, all := range [][]*namedError{r.errors, knownErrors, httpErrors} {
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
