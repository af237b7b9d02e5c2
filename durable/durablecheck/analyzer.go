package durablecheck

import (
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports code that makes an orchestrator behave differently on replay. The package comment
// lists its rules.
var Analyzer = &analysis.Analyzer{
	Name: "durablecheck",
	Doc: `report code that makes an orchestrator behave differently on replay

An orchestrator is a function whose first parameter is a *durable.Context. When
an event arrives for its instance, it runs again from the start and must then
make the same decisions as before. The analyzer reports uses of clocks, random
numbers, I/O, goroutines, locks, package-level state, map order and the like in
orchestrators and in the functions that they call.

A comment //durablecheck:ignore with a reason marks code as safe: on the line,
alone on the line above, or in the doc comment of the function.`,
	Run:        run,
	ResultType: reflect.TypeFor[struct{}](),
	FactTypes:  []analysis.Fact{(*summary)(nil)},
}

func run(pass *analysis.Pass) (any, error) {
	path := packagePath(pass.Pkg)
	if isStandard(path, pass.Module) || isOwnInternals(path) {
		return struct{}{}, nil
	}
	c := &checker{
		Pass:     pass,
		path:     path,
		ignores:  newIgnores(pass),
		byObject: map[types.Object]*function{},
		imported: map[types.Object]*summary{},
	}
	if pass.Module != nil {
		c.module = pass.Module.Path
	}
	c.mutations = findMutations(c)
	c.collect()
	r := &resolver{c}
	r.resolve()
	r.report()
	r.export()
	return struct{}{}, nil
}
