package replay

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// FailureOf returns the failure that histories and programs of other languages get
// for an error: its type and its text. The type is that of the first error in the
// chain that has one: errors.New, fmt.Errorf and errors.Join make errors that
// have nothing but words. If there is none, it is "error".
//
// The failure of a task that the error wraps becomes the inner failure. Such an
// error has a method FailureDetails. An error with a method Failure chooses its
// failure itself.
//
// The methods of an error, and of what it wraps, are the user's and may panic: a nil
// *fs.PathError cannot be unwrapped, for instance. It has its type then, and a text.
func FailureOf(err error) (d *history.FailureDetails) {
	defer func() {
		if v := recover(); v != nil {
			d = &history.FailureDetails{ErrorMessage: text(err), ErrorType: fmt.Sprintf("%T", err)}
		}
	}()
	if f, ok := err.(interface {
		Failure() *history.FailureDetails
	}); ok { //nolint:errorlint // not what it wraps
		return f.Failure()
	}
	d = &history.FailureDetails{ErrorMessage: text(err), ErrorType: typeName(err)}
	var task interface {
		error
		FailureDetails() *history.FailureDetails
	}
	if errors.As(err, &task) {
		d.InnerFailure = task.FailureDetails()
	}
	return d
}

// reasonOf returns the text with which an orchestrator fails that returned err:
// what failed it. For the failure of a task that it hands on as it got it that
// is the text that the task failed with, which stays the same from generation to
// generation, and not the sentence that names the task; what an orchestrator has
// to add counts. Such an error has a method Reason
// (DurableTask.Core/TaskOrchestrationContext.cs, FailOrchestration and
// HandleTaskFailedEvent).
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

// FailureOfPanic returns the same of a panic with v. The stack may be nil.
func FailureOfPanic(v any, stack []byte) *history.FailureDetails {
	var d *history.FailureDetails
	switch v := v.(type) {
	case error:
		d = FailureOf(v)
		if ownType(v) != usageError {
			d.ErrorMessage = "panic: " + d.ErrorMessage
		}
	default:
		d = &history.FailureDetails{ErrorType: "panic", ErrorMessage: fmt.Sprintf("panic: %v", v)}
	}
	if stack != nil {
		d.StackTrace = new(string(stack))
	}
	return d
}

// text returns err's text, though its Error method panics.
func text(err error) (s string) {
	defer func() {
		if v := recover(); v != nil {
			s = fmt.Sprintf("an error of type %T, whose Error method panicked: %v", err, v)
		}
	}()
	return err.Error()
}

// untyped is the type of an error that has nothing but words.
const untyped = "error"

func typeName(err error) string {
	name := untyped
	Chain(err, func(err error) bool {
		name = ownType(err)
		return name != untyped
	})
	return name
}

// ownType returns the name of an error's type, whatever the error wraps.
func ownType(err error) string {
	switch any(err).(type) { // this very error, not one that it wraps
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

// Chain calls f with err and with what it wraps, in the order of errors.Is,
// until f returns true. It reports whether f did.
func Chain(err error, f func(error) bool) bool {
	for err != nil {
		if f(err) {
			return true
		}
		switch e := err.(type) { //nolint:errorlint // this walks the chain
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if Chain(inner, f) {
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
