package durable

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Lookup returns what fn, an orchestrator's or an activity's function, was
// registered as.
func (r *Registry) Lookup(fn any) (*Function, error) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil, fmt.Errorf("durable: a %T is no function", fn)
	}
	if named := v.Type(); named.Name() != "" {
		unnamed := reflect.FuncOf(slices.Collect(named.Ins()), slices.Collect(named.Outs()), named.IsVariadic())
		v = v.Convert(unnamed)
	}
	if f, ok := r.byCode.get(v); ok {
		return f, nil
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

// ReplaceOperation returns a copy of r in which stub is performed in the place of
// an operation of an entity, which must be registered. It is for tests, as
// [Registry.Replace] is.
func ReplaceOperation[S, I, O any](r *Registry, operation, stub func(*S, *EntityContext, I) (O, error)) (*Registry, error) {
	id, name, err := operationOf(r, EntityKey[S](""), operation)
	if err != nil {
		return nil, err
	}
	f := new(*r.entityNamed(id.Name))
	f.entity = new(*f.entity)
	f.entity.operations = maps.Clone(f.entity.operations)
	f.entity.operations[strings.ToUpper(name)] = performs(stub)
	other := r.Replace(f)
	other.byState = maps.Clone(r.byState)
	other.byState[f.entity.state] = f
	return other, nil
}

// WithLogger returns a copy of r whose orchestrators log to l, unless a [Worker]
// runs them, which has its own.
func (r *Registry) WithLogger(l *slog.Logger) *Registry { return r.withLogger(l) }
