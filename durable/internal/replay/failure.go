package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// FailureOf converts an error to the failure that is stored in histories and shown to programs
// in other languages. The failure has the text and the type of the error. The type comes from
// the first error in the chain that has a type of its own. Errors of errors.New, fmt.Errorf and
// errors.Join have none. If the chain has no type, it is "error".
//
// If the chain contains an error with a method FailureDetails, which is the failure of a task, the
// result becomes the inner failure. Of more than [MaxInner] inner failures, FailureOf keeps the
// outermost ones and the innermost one. An error with a method Failure provides its whole failure.
//
// The methods of err and of the errors in its chain belong to the user and may panic, for example
// Unwrap of a nil *fs.PathError. FailureOf then uses the type of err and a substitute text.
func FailureOf(err error) (d *history.FailureDetails) {
	defer func() {
		if v := recover(); v != nil {
			d = &history.FailureDetails{ErrorMessage: text(err), ErrorType: fmt.Sprintf("%T", err)}
		}
	}()
	if f, ok := err.(interface {
		Failure() *history.FailureDetails
	}); ok { //nolint:errorlint // only err itself, not its chain
		return f.Failure()
	}
	err = LimitDepth(err)
	d = &history.FailureDetails{ErrorMessage: text(err), ErrorType: typeName(err)}
	var task interface {
		error
		FailureDetails() *history.FailureDetails
	}
	if errors.As(err, &task) {
		d.InnerFailure = limitInner(task.FailureDetails())
	}
	return d
}

// MaxInner is the maximum number of inner failures of a failure. A failure has at most one inner
// failure, so the failures form a chain. .NET reads JSON only up to a depth of 64
// (Newtonsoft.Json, JsonReader.MaxDepth).
const MaxInner = 32

// limitInner returns a chain of at most MaxInner failures. If the chain f is longer, the result
// has copies of the outermost ones and ends with the innermost one, the root cause.
func limitInner(f *history.FailureDetails) *history.FailureDetails {
	length, root := 0, f
	for inner := f; inner != nil; inner = inner.InnerFailure {
		length, root = length+1, inner
	}
	if length <= MaxInner {
		return f
	}
	var first *history.FailureDetails
	end := &first
	for range MaxInner - 1 {
		*end = new(*f)
		f, end = f.InnerFailure, &(*end).InnerFailure
	}
	*end = root
	return first
}

// reasonOf returns the failure text of an orchestrator that returned err. If the orchestrator
// returned the failure of a task unchanged, the text is the task's own failure text, without
// the sentence that names the task. This text stays the same from generation to generation.
// Such an error has a method Reason. If the orchestrator added text, the whole text counts
// (DurableTask.Core/TaskOrchestrationContext.cs, FailOrchestration and HandleTaskFailedEvent).
func reasonOf(err error, failure *history.FailureDetails) string {
	var task interface {
		error
		Reason() string
	}
	if errors.As(err, &task) && text(task) == failure.ErrorMessage {
		return task.Reason()
	}
	return failure.ErrorMessage
}

// FailureOfPanic converts a panic with value v to a failure. Stack may be nil.
func FailureOfPanic(v any, stack []byte) *history.FailureDetails {
	var d *history.FailureDetails
	switch v := v.(type) {
	case error:
		d = FailureOf(v)
		if ownType(v) != usageError {
			d.ErrorMessage = "panic: " + d.ErrorMessage
		}
	default:
		d = &history.FailureDetails{ErrorType: "panic", ErrorMessage: strings.ToValidUTF8(fmt.Sprintf("panic: %v", v), "\uFFFD")}
	}
	if stack != nil {
		d.StackTrace = new(string(stack))
	}
	return d
}

// text returns the text of err, or a substitute if its Error method panics.
func text(err error) (s string) {
	defer func() {
		if v := recover(); v != nil {
			s = fmt.Sprintf("an error of type %T, whose Error method panicked: %v", err, v)
		}
		s = strings.ToValidUTF8(s, "\uFFFD") // as a store keeps it
	}()
	return err.Error()
}

// untyped is the type name of errors without a type of their own.
const untyped = "error"

func typeName(err error) string {
	name := untyped
	WalkErrors(err, func(err error) bool {
		name = ownType(err)
		return name != untyped
	})
	return name
}

// ownType returns the type name of err, without regard to the errors that it wraps.
func ownType(err error) string {
	switch any(err).(type) { // only err itself, not its chain
	case *NonDeterminismError:
		return "*durable.NonDeterminismError"
	case interface{ OnlyMarks() }:
		return untyped
	}
	switch name := fmt.Sprintf("%T", err); name {
	case "*errors.errorString", "*fmt.wrapError", "*fmt.wrapErrors", "*errors.joinError":
		return untyped
	default:
		return name
	}
}

// maxDepth is the maximum number of errors that wrap each other.
const maxDepth = 1000

// LimitDepth returns err, or an error that has only its text if more than 1,000 errors wrap each
// other. This includes an error that wraps itself, for which errors.Is and errors.As do not
// return.
func LimitDepth(err error) error {
	if isDeeper(err, maxDepth) {
		return errors.New(text(err))
	}
	return err
}

// isDeeper reports whether more than limit errors of err's tree wrap each other.
func isDeeper(err error, limit int) bool {
	if err == nil || limit == 0 {
		return err != nil
	}
	switch e := err.(type) { //nolint:errorlint // this walks the tree
	case interface{ Unwrap() error }:
		return isDeeper(e.Unwrap(), limit-1)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return isDeeper(inner, limit-1) })
	}
	return false
}

// WalkErrors calls f with err and the errors that it wraps, in the order of errors.Is, until f
// returns true. It reports whether f returned true.
func WalkErrors(err error, f func(error) bool) bool {
	for err != nil {
		if f(err) {
			return true
		}
		switch e := err.(type) { //nolint:errorlint // this walks the chain
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if WalkErrors(inner, f) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}
