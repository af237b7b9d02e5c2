package durable

import (
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"
)

// TextError means that a text is not valid UTF-8. A hub cannot store such a text: it
// would be altered, or result in invalid JSON.
type TextError struct {
	What string // identifies the text, such as "EventRaised.Input"
}

// Error names the text.
func (e *TextError) Error() string {
	return e.What + " is not valid UTF-8; encode it, for instance as Base64"
}

// checkTexts returns a *[TextError] if v contains a string that is not valid UTF-8. It
// inspects structs and maps recursively. The parameter what names v in the error.
func checkTexts(what string, v any) error { return checkTextsOf(what, reflect.ValueOf(v)) }

func checkTextsOf(what string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return &TextError{what}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkTextsOf(what, v.Elem())
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if err := checkTextsOf(what, key); err != nil {
				return err
			}
			if err := checkTextsOf(fmt.Sprintf("%s[%v]", what, key), value); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			if err := checkTextsOf(what+"."+field.Name, value); err != nil {
				return err
			}
		}
	default: // other kinds contain no text
	}
	return nil
}
