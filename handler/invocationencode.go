package handler

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"unicode/utf8"
)

// An outputItem is one thing to be written: the bytes of a message or blob, or
// a document of its own.
type outputItem struct {
	content  []byte
	document bool // content is JSON that is no text
}

// Types of outputs, by what they take.
var (
	// messageKinds take text or bytes; JSON is just text to them.
	messageKinds = []string{"queue", "serviceBus", "eventHub", "blob", "kafka", "rabbitMQ"}
	// onceKinds are written once in a call.
	onceKinds = []string{"blob", "http"}
)

// encodeItem makes an item of what a function puts into an output of the given
// type.
func encodeItem(kind string, item any) (outputItem, error) {
	switch v := item.(type) {
	case []byte:
		return outputItem{content: slices.Clone(v)}, nil
	case string:
		return outputItem{content: []byte(v)}, nil
	case json.Marshaler:
	default:
		if value := reflect.ValueOf(item); value.Kind() == reflect.String {
			return outputItem{content: []byte(value.String())}, nil
		}
	}
	text, err := marshalJSON(item)
	if err != nil {
		return outputItem{}, err
	}
	return outputItem{content: text, document: !slices.Contains(messageKinds, kind)}, nil
}

// outputValue returns what an output's items are in the answer to an
// invocation. The host guesses
// (azure-functions-host: Workers/Http/HttpScriptInvocationResultExtensions.cs, Binding/FunctionBinding.cs):
//
//  1. A string that could be Base64 is decoded, which would corrupt the text
//     "test". So what is text or bytes goes as Base64.
//  2. An array becomes a message for each element, and so does a string that
//     looks like one; Base64 keeps the latter whole. The elements of an array are
//     not decoded. So several texts go as strings.
//  3. A string that looks like a date becomes one on the way and is written in
//     another form. In Base64 it is safe; among several texts it is not.
func outputValue(kind string, items []outputItem) (json.RawMessage, error) {
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
		element, err := marshalJSON(text)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return marshalJSON(list)
}

func oneValue(item outputItem) (json.RawMessage, error) {
	if item.document {
		return item.content, nil
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(item.content))
}

// looksLikeDate matches what Newtonsoft's reader takes for a date.
var looksLikeDate = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}.*|/Date\(.*\)/)$`)

// An invocationResult is the answer to an invocation. It is never empty: the
// host would wait for ever.
type invocationResult struct {
	Outputs     map[string]json.RawMessage
	Logs        []string
	ReturnValue json.RawMessage
}

// result returns what the call comes to. It fails if something that the
// function put cannot be written.
func (c *Invocation) result() (invocationResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	result := invocationResult{Outputs: map[string]json.RawMessage{}, Logs: slices.Clone(c.lines)}
	if result.Logs == nil {
		result.Logs = []string{}
	}
	if c.failure != nil {
		return result, c.failure
	}
	for _, b := range c.outputs {
		items := c.items[b.name]
		if len(items) == 0 {
			continue
		}
		value, err := outputValue(b.kind, items)
		if err != nil {
			return result, fmt.Errorf("output %q %w", b.name, err)
		}
		if b.name == returnName {
			result.ReturnValue = value
		} else {
			result.Outputs[b.name] = value
		}
	}
	return result, nil
}
