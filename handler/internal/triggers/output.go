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

// An Item is one value of an output: the bytes of a message or blob, or a JSON document.
type Item struct {
	content  []byte
	document bool // content is JSON, not text
}

// Types of outputs.
var (
	// messageKinds accept text or bytes. They treat JSON as text.
	messageKinds = []string{"queue", "serviceBus", "eventHub", "blob", "kafka", "rabbitMQ"}
	// onceKinds can be written once per call.
	onceKinds = []string{"blob", "http"}
)

// Encode returns the item for a value in an output of the given type.
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

// OutputValue encodes the items of an output for the answer to an invocation. It takes into account how
// the host interprets values (azure-functions-host:
// Workers/Http/HttpScriptInvocationResultExtensions.cs, Binding/FunctionBinding.cs):
//
//  1. The host decodes a string that looks like Base64, such as "test". One text or byte slice is
//     therefore sent as Base64.
//  2. The host turns an array, or a string that looks like an array, into one message per element.
//     Base64 prevents this for a string. The host does not decode elements, so several texts are sent
//     as strings.
//  3. The host reformats a string that looks like a date. Base64 prevents this for one text, but
//     several texts cannot be protected.
func OutputValue(kind string, items []Item) (json.RawMessage, error) {
	if len(items) == 1 {
		return oneValue(items[0])
	}
	if slices.Contains(onceKinds, kind) {
		return nil, fmt.Errorf("has %d items, but can be written only once per call", len(items))
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
			return nil, errors.New("has several items that are not UTF-8 text; the host accepts only one per call")
		case looksLikeDate.MatchString(text):
			return nil, fmt.Errorf("has several items, one of them %q: the host would reformat this date; encode it in JSON", text)
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

// looksLikeDate matches text that Newtonsoft.Json parses as a date.
var looksLikeDate = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}.*|/Date\(.*\)/)$`)
