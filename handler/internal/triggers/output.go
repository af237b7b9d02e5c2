package triggers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
)

// An Item is one value of an output: the bytes of a message or blob, or a document.
type Item struct {
	content  []byte
	document bool // content is a JSON value, not text
}

// Types of outputs.
var (
	// messageKinds take text or bytes; JSON is just text to them.
	messageKinds = []string{"queue", "serviceBus", "eventHub", "blob", "kafka", "rabbitMQ"}
	// onceKinds are written once in a call.
	onceKinds = []string{"blob", "http"}
)

// Encode returns the item for a value that a function puts into an output of a type.
func Encode(kind string, item any) (Item, error) {
	switch v := item.(type) {
	case []byte:
		return Item{content: slices.Clone(v)}, nil
	case string:
		return Item{content: []byte(v)}, nil
	case json.Marshaler:
	default:
		if value := reflect.ValueOf(item); value.Kind() == reflect.String {
			return Item{content: []byte(value.String())}, nil
		}
	}
	text, err := jsontext.Marshal(item)
	if err != nil {
		return Item{}, err
	}
	return Item{content: text, document: !slices.Contains(messageKinds, kind)}, nil
}

// OutputValue returns an output's items as the answer to an invocation has them. The host
// guesses
// (azure-functions-host: Workers/Http/HttpScriptInvocationResultExtensions.cs, Binding/FunctionBinding.cs):
//
//  1. A string that could be Base64 is decoded, which would corrupt the text
//     "test". So what is text or bytes goes as Base64.
//  2. An array becomes a message for each element, and so does a string that
//     looks like one; Base64 keeps the latter whole. The elements of an array are
//     not decoded. So several texts go as strings.
//  3. A string that looks like a date becomes one on the way and is written in
//     another form. In Base64 it is safe; among several texts it is not.
func OutputValue(kind string, items []Item) (json.RawMessage, error) {
	if len(items) == 1 {
		return oneValue(items[0])
	}
	if slices.Contains(onceKinds, kind) {
		return nil, fmt.Errorf("has been put %d times, and can be written once", len(items))
	}
	var list []json.RawMessage
	for _, item := range items {
		if item.document {
			list = append(list, item.content)
			continue
		}
		text := string(item.content)
		switch {
		case !utf8.ValidString(text):
			return nil, errors.New("has several items that are not UTF-8 text: the host can take one in a call")
		case looksLikeDate.MatchString(text):
			return nil, fmt.Errorf("has several items of which one is %q: the host would write that date in another form. Put it into JSON", text)
		}
		element, err := jsontext.Marshal(text)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return jsontext.Marshal(list)
}

func oneValue(item Item) (json.RawMessage, error) {
	if item.document {
		return item.content, nil
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(item.content))
}

// looksLikeDate matches text that Newtonsoft's reader parses as a date.
var looksLikeDate = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}.*|/Date\(.*\)/)$`)
