package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports what makes an orchestrator behave differently when it is
// replayed. The package comment has its rules.
var Analyzer = &analysis.Analyzer{
	Name: "durablecheck",
	Doc: `report what makes an orchestrator behave differently on replay

An orchestrator, a function whose first parameter is a *durable.Context, is run
again from the start whenever its instance goes on, and must then do what it did
before. The analyzer reports clocks, random numbers, I/O, goroutines, locks,
package-level state, map order and the like in orchestrators and in what they
call.

A comment //durablecheck:ignore with a reason, on the line, on a line of its own
above it or in the comment of the function, says that it is safe.`,
	Run:        run,
	ResultType: reflect.TypeFor[struct{}](),
	FactTypes:  []analysis.Fact{(*summary)(nil)},
}

// A checker analyses one package.
type checker struct {
	*analysis.Pass
	path      string
	module    string
	ignores   *ignores
	mutable   map[*types.Var]bool
	mutators  map[*types.Func]bool
	written   map[*ast.Ident]bool // names of package-level variables where they are changed
	functions []*function         // in the order of their source
	byObject  map[types.Object]*function
	imported  map[types.Object]*summary
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
	c.findMutators()
	c.mutable = c.mutableVariables()
	c.collect()
	c.resolve()
	c.report()
	c.export()
	return struct{}{}, nil
}

// collect finds the package's functions and what each of them does itself.
func (c *checker) collect() {
	for _, file := range c.Files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if obj, ok := c.TypesInfo.Defs[d.Name].(*types.Func); ok && d.Body != nil {
					c.declared(obj, d)
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					for _, spec := range d.Specs {
						c.variables(spec.(*ast.ValueSpec))
					}
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.FuncLit); ok && isOrchestrator(c.TypesInfo.TypeOf(lit).(*types.Signature)) {
				f := c.add(nil, "function literal", lit)
				f.orchestrator = true
				c.checkResults(f, lit.Type)
				c.walk(f, lit.Body)
			}
			return true
		})
	}
}

func (c *checker) declared(obj *types.Func, d *ast.FuncDecl) {
	sig := obj.Signature()
	if takesContext(sig) {
		return // an activity may do anything, and calling one is reported at the call
	}
	f := c.add(obj, nameOf(obj), d)
	if f.orchestrator = isOrchestrator(sig); f.orchestrator {
		c.checkResults(f, d.Type)
	}
	c.walk(f, d.Body)
}

func (c *checker) add(obj types.Object, name string, n ast.Node) *function {
	f := &function{step: step{Path: c.path, Name: c.Pkg.Name() + "." + name}, body: n}
	c.functions = append(c.functions, f)
	if obj != nil {
		c.byObject[obj] = f
	}
	return f
}

// checkResults reports an orchestrator that returns a context.Context.
func (c *checker) checkResults(f *function, t *ast.FuncType) {
	if t.Results == nil {
		return
	}
	for _, field := range t.Results.List {
		if isNamed(c.TypesInfo.TypeOf(field.Type), "context", "Context") {
			c.use(f, field.Pos(), deadlines.about("a result of type context.Context"))
		}
	}
}

// use notes that f does what the finding says, unless a comment allows it.
func (c *checker) use(f *function, pos token.Pos, found finding) {
	if !c.ignores.at(pos) {
		f.uses = append(f.uses, use{pos, found})
	}
}

// nameOf returns Func or Type.Method.
func nameOf(fn *types.Func) string {
	if r := receiver(fn); r != "" {
		return r + "." + fn.Name()
	}
	return fn.Name()
}

// qualified returns the name of obj with that of its package.
func qualified(obj types.Object) string {
	name := obj.Name()
	if fn, ok := obj.(*types.Func); ok {
		name = nameOf(fn)
	}
	if obj.Pkg() == nil {
		return name
	}
	return obj.Pkg().Name() + "." + name
}
