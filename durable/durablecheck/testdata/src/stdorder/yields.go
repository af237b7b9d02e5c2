package stdorder

import (
	"go/ast"
	"go/token"
	"maps"
	"reflect"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func yields(ctx *durable.Context, m map[string]int) (string, error) {
	_, _ = iterate(maps.All(m)), 1                              // want `maps.All yields in the order of a map, which differs on replay; wrap it in slices.Sorted`
	_ = slices.Collect(maps.Keys(m))                            // want `maps.Keys yields`
	_ = slices.Collect(maps.Values(m))                          // want `maps.Values yields`
	_ = reflect.ValueOf(m).MapKeys()[0]                         // want `reflect.Value.MapKeys yields`
	_ = reflect.ValueOf(m).MapRange().Next()                    // want `reflect.Value.MapRange yields`
	_ = slices.Collect(reflect.ValueOf(m).Seq())                // want `reflect.Value.Seq yields`
	_ = iterate(reflect.ValueOf(m).Seq2())                      // want `reflect.Value.Seq2 yields`
	_, err := ast.NewPackage(token.NewFileSet(), nil, nil, nil) // want `ast.NewPackage yields`
	return "", err
}

func iterate[K, V any](seq func(func(K, V) bool)) bool { return seq != nil }

func sortedKeys(ctx *durable.Context, m map[string]int) (string, error) {
	ks := reflect.ValueOf(m).MapKeys()
	slices.SortFunc(ks, func(a, b reflect.Value) int { return a.Len() - b.Len() })
	return ks[0].String(), nil
}
