package durable

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
)

// Lookup returns what fn, an orchestrator's or an activity's function, was
// registered as.
func (r *Registry) Lookup(fn any) (*Function, error) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil, fmt.Errorf("durable: a %T is no function", fn)
	}
	for _, kind := range []functionKind{orchestratorKind, activityKind} {
		if f := r.byCode[functionCode{kind, v.Pointer()}]; f != nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("durable: %s is not registered; add it to the registry with a name", symbolOf(v.Pointer()))
}

// Version returns the version that an orchestrator is for, empty if it is for
// all.
func (f *Function) Version() Version { return f.version }

// Replace returns a copy of r in which f is the function of its kind, name and
// version, whether r has one or not. Calls by reference to the one that it
// replaces reach f; f's own Go function is not known to the copy. It is for
// tests that put something else in a function's place.
func (r *Registry) Replace(f *Function) *Registry {
	other := *r
	other.byName = maps.Clone(r.byName)
	other.byName[keyOf(f)] = f
	return &other
}

// WithLogger returns a copy of r whose orchestrators log to l, unless a [Worker]
// runs them, which has its own.
func (r *Registry) WithLogger(l *slog.Logger) *Registry { return r.withLogger(l) }
