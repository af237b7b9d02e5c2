package entity

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// An ordered is a map that keeps the order in which its keys were added, like a dictionary in
// .NET.
type ordered[V any] struct {
	keys   []string
	values map[string]V
}

func (o *ordered[V]) get(key string) (V, bool) {
	v, ok := o.values[key]
	return v, ok
}

func (o *ordered[V]) set(key string, v V) {
	if _, ok := o.values[key]; !ok {
		if o.values == nil {
			o.values = make(map[string]V)
		}
		o.keys = append(o.keys, key)
	}
	o.values[key] = v
}

// deleteFunc deletes the entries for which del returns true.
func (o *ordered[V]) deleteFunc(del func(V) bool) {
	o.keys = slices.DeleteFunc(o.keys, func(key string) bool {
		if !del(o.values[key]) {
			return false
		}
		delete(o.values, key)
		return true
	})
}

// UnmarshalJSON decodes an object.
func (o *ordered[V]) UnmarshalJSON(data []byte) error {
	*o = ordered[V]{}
	dec := json.NewDecoder(bytes.NewReader(data))
	open, err := dec.Token()
	if err != nil || open == nil {
		return err
	}
	if open != json.Delim('{') {
		return errors.New("a dictionary is not an object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		if key == "$type" {
			var ignored json.RawMessage
			if err := dec.Decode(&ignored); err != nil {
				return err
			}
			continue
		}
		var v V
		if err := dec.Decode(&v); err != nil {
			return err
		}
		o.set(key.(string), v)
	}
	return nil
}
