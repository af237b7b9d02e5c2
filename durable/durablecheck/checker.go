package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// A checker analyzes one package.
type checker struct {
	*analysis.Pass
	path      string
	module    string
	ignores   *ignores
	mutations *mutations
	functions []*function // in source order
	byObject  map[types.Object]*function
	imported  map[types.Object]*summary
}

// collect finds the functions of the package and their own operations.
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
	if isOperation(sig) {
		return
	}
	f := c.add(obj, nameOf(obj), d)
	if f.inStep = takesContext(sig); f.inStep {
		c.walk(f, d.Body) // for durable calls; calling an activity directly is reported at the call
		return
	}
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

// use records a finding of f, unless a comment ignores it or the rules do not apply to f.
func (c *checker) use(f *function, pos token.Pos, found finding) {
	if !c.ignores.at(pos) && !f.root().inStep {
		f.uses = append(f.uses, use{pos, found})
	}
}

// stepOf returns obj as a step in a chain of calls.
func (c *checker) stepOf(obj types.Object) step {
	return step{Path: packagePath(obj.Pkg()), Name: qualified(obj)}
}

// summaryOf returns the facts of an object of another package, nil if it has none.
func (c *checker) summaryOf(obj types.Object) *summary {
	if obj.Pkg() == nil || obj.Pkg() == c.Pkg {
		return nil
	}
	s, ok := c.imported[obj]
	if !ok {
		s = new(summary)
		if !c.ImportObjectFact(obj, s) {
			s = nil
		}
		c.imported[obj] = s
	}
	return s
}

// orderLeak reports a range over a map whose order has an effect after the loop. It also records that
// f returns a slice in this order.
func (c *checker) orderLeak(f *function, loop *mapLoop) {
	if loop.reported || loop.body == nil {
		return
	}
	leak, unordered := newLeakCheck(c, f, loop).find()
	f.unordered = f.unordered || unordered
	if leak != "" {
		adv := advice{ruleMapOrder, leak + " in another order on each replay", durableOrder.instead}
		c.use(f, loop.node.Pos(), adv.about(loop.subject))
	}
}

// durableAt reports a durable call in a place where it is not allowed. f, or a function that it calls
// at pos, makes the call.
func (c *checker) durableAt(f *function, pos token.Pos, deferred bool, loops []*mapLoop, d *durableUse) {
	if deferred {
		found := inDefer.about(d.Call)
		found.Via = d.Via
		c.use(f, pos, found)
	}
	for _, loop := range loops {
		c.durableInLoop(f, loop, d)
	}
}

// durableInLoop reports a durable call within a range over a map.
func (c *checker) durableInLoop(f *function, loop *mapLoop, d *durableUse) {
	if loop.reported {
		return
	}
	loop.reported = true
	adv := *durableOrder
	adv.because = "makes durable calls (" + d.text(c.path) + ") in another order on each replay"
	c.use(f, loop.node.Pos(), adv.about(loop.subject))
}

// variables collects the findings of mentioning declared package-level variables. A variable that is
// initialized with a function stands for it. A variable whose initializer uses the time, a random
// number or the environment has another value in each process.
func (c *checker) variables(spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		v, ok := c.TypesInfo.Defs[name].(*types.Var)
		if !ok || len(spec.Values) == 0 {
			continue
		}
		value := spec.Values[0]
		if len(spec.Values) == len(spec.Names) {
			value = spec.Values[i]
		}
		switch e := ast.Unparen(value).(type) {
		case *ast.FuncLit:
			if sig := signature(v.Type()); !takesContext(sig) && !isOrchestrator(sig) {
				c.walk(c.add(v, v.Name(), e), e.Body)
			}
		case *ast.Ident, *ast.SelectorExpr:
			if signature(v.Type()) != nil {
				c.walk(c.add(v, v.Name(), e), e)
			}
		default:
			c.initialiser(v, value)
		}
	}
}

// initialiser collects the findings of an initial value of v. Function literals in it do not run
// during initialization. The order of a value that the package sorts anywhere has no effect.
func (c *checker) initialiser(v *types.Var, value ast.Expr) {
	f := c.add(v, v.Name(), value)
	w := c.newWalker(f, value)
	sorted := c.sorts(v)
	ast.Inspect(value, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		w.orders.pass(c.TypesInfo, call)
		_, id := calledName(call)
		if fn, ok := calleeOf(c.TypesInfo, call).(*types.Func); ok && fn.Pkg() != nil {
			w.called[id] = call
			if sorted {
				w.orders[call] = ordered
			}
			w.function(id, call.Pos(), fn)
		}
		return true
	})
	f.uses = slices.DeleteFunc(f.uses, func(u use) bool { return !dependsOnProcess(u.finding.Rule) })
	f.initialiser = true
}

// sorts reports whether the package sorts v.
func (c *checker) sorts(v *types.Var) bool {
	of, found := map[types.Object]bool{v: true}, false
	for _, file := range c.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			found = found || ok && sortsAny(c.TypesInfo, call, of)
			return !found
		})
	}
	return found
}

func (c *checker) isTest(pos token.Pos) bool {
	return strings.HasSuffix(c.Fset.Position(pos).Filename, "_test.go")
}

// walk collects the operations and calls of f in n.
func (c *checker) walk(f *function, n ast.Node) { ast.Inspect(n, c.newWalker(f, n).visit) }

func (c *checker) newWalker(f *function, n ast.Node) *walker {
	w := &walker{
		checker: c, f: f,
		literals: namedLiterals(c.TypesInfo, n), names: map[*ast.FuncLit]types.Object{}, closures: map[types.Object]*function{},
		called: map[*ast.Ident]*ast.CallExpr{}, start: map[*ast.Ident]token.Pos{}, escaping: map[ast.Node]bool{},
		part: map[ast.Node]bool{}, orders: orders{},
	}
	for obj, lit := range w.literals {
		w.names[lit] = obj
	}
	w.stepOnly = stepLiterals(c.TypesInfo, n, w.literals)
	return w
}
