package durablecheck

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	c.resolve()
	c.report()
	c.export()
	return struct{}{}, nil
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
	if takesContext(sig) {
		return // an activity may do anything; calling it is reported at the call
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

// use records a finding of f, unless a comment ignores it.
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

// qualified returns the name of obj with its package name.
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

// resolve finds what functions do through the functions that they call.
func (c *checker) resolve() {
	c.resolveDurable()
	c.resolveOrder()
	for _, f := range c.functions {
		slices.SortStableFunc(f.uses, func(a, b use) int { return cmp.Compare(a.pos, b.pos) })
		f.reaches = map[rule]finding{}
		for _, u := range f.uses {
			if _, ok := f.reaches[u.finding.Rule]; !ok {
				f.reaches[u.finding.Rule] = u.finding
			}
		}
	}
	c.spread(func(f *function) func() {
		found := c.reachedNewly(f)
		if len(found) == 0 {
			return nil
		}
		return func() { maps.Copy(f.reaches, found) }
	})
}

// resolveDurable finds the functions that make durable calls, and the places where such calls are not
// allowed.
func (c *checker) resolveDurable() {
	c.spread(func(f *function) func() {
		if f.durable != nil {
			return nil
		}
		for _, call := range f.calls {
			if d := c.durableOf(call.callee); d != nil {
				return func() { f.durable = d }
			}
		}
		return nil
	})
	for _, f := range c.functions {
		for _, call := range f.calls {
			if d := c.durableOf(call.callee); d != nil {
				c.durableAt(f, call.pos, call.deferred, call.loops, d)
			}
		}
	}
}

// resolveOrder finds the functions whose results are in map order, and the places where this order has
// an effect.
func (c *checker) resolveOrder() {
	for _, f := range c.functions {
		for _, loop := range f.loops {
			c.orderLeak(f, loop)
		}
	}
	c.spread(func(f *function) func() {
		for _, call := range f.calls {
			if call.order == returned && !f.unordered && !f.root().orchestrator && c.isUnordered(call.callee) {
				return func() { f.unordered = true }
			}
		}
		return nil
	})
	for _, f := range c.functions {
		for _, call := range f.calls {
			seen := call.order == kept || call.order == returned && f.root().orchestrator
			if seen && c.isUnordered(call.callee) {
				c.use(f, call.pos, mapOrder.about("what "+chain([]step{c.stepOf(call.callee)}, c.path)+" returns"))
			}
		}
	}
}

// reachedNewly returns the findings that f reaches through its calls and that are not known yet: the
// first finding of each rule.
func (c *checker) reachedNewly(f *function) map[rule]finding {
	found := map[rule]finding{}
	for _, call := range f.calls {
		if call.ignored {
			continue
		}
		for _, r := range c.reachedThrough(f, call.callee) {
			_, known := f.reaches[r.Rule]
			if _, ok := found[r.Rule]; !ok && !known {
				found[r.Rule] = r
			}
		}
	}
	return found
}

// spread calls learn for every function until no function learns anything new. learn returns a
// function that applies what it has learned. All functions of a round are applied together, so that
// the shortest chain of calls is reported.
func (c *checker) spread(learn func(*function) func()) {
	for {
		var news []func()
		for _, f := range c.functions {
			if apply := learn(f); apply != nil {
				news = append(news, apply)
			}
		}
		if len(news) == 0 {
			return
		}
		for _, apply := range news {
			apply()
		}
	}
}

// durableOf returns the durable call that obj makes, from the perspective of its caller.
func (c *checker) durableOf(obj types.Object) *durableUse {
	var d *durableUse
	if f, ok := c.byObject[obj]; ok {
		if d = f.durable; d == nil || f.outer != nil {
			return d
		}
	} else if s := c.summaryOf(obj); s != nil {
		d = s.Durable
	}
	if d == nil {
		return nil
	}
	return d.through(c.stepOf(obj))
}

func (c *checker) isUnordered(obj types.Object) bool {
	if f, ok := c.byObject[obj]; ok {
		return f.unordered
	}
	s := c.summaryOf(obj)
	return s != nil && s.Unordered
}

// reachedThrough returns the findings of f that come from mentioning obj: at most one per rule, in the
// order of the rules.
func (c *checker) reachedThrough(f *function, obj types.Object) []finding {
	var reached []finding
	if callee, ok := c.byObject[obj]; ok {
		if callee.root().orchestrator {
			return nil // reported in the orchestrator itself
		}
		for _, r := range rules {
			if found, ok := callee.reaches[r]; ok {
				if callee.outer == nil {
					found = found.through(callee.step)
				}
				reached = append(reached, found)
			}
		}
	} else if s := c.summaryOf(obj); s != nil {
		same := s.Module == c.module
		if fn, ok := obj.(*types.Func); ok && same && isOrchestrator(fn.Signature()) {
			return nil // reported in the orchestrator itself
		}
		if !same && f.initialiser {
			return nil
		}
		for _, found := range s.Reaches {
			if same || found.Rule.crosses() {
				reached = append(reached, found.through(c.stepOf(obj)))
			}
		}
		if !same && len(reached) > 1 && f.root().orchestrator {
			reached = reached[:1]
		}
	}
	if f.initialiser {
		reached = slices.DeleteFunc(reached, func(found finding) bool { return !dependsOnProcess(found.Rule) })
	}
	return reached
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

// report reports the findings of orchestrators, direct and through calls.
func (c *checker) report() {
	var all []use
	for _, f := range c.functions {
		if !f.root().orchestrator {
			continue
		}
		all = append(all, f.uses...)
		for _, call := range f.calls {
			if call.ignored {
				continue
			}
			for _, found := range c.reachedThrough(f, call.callee) {
				all = append(all, use{call.pos, found})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b use) int { return cmp.Compare(a.pos, b.pos) })
	type key struct {
		file    string
		line    int
		message string
	}
	seen := map[key]bool{}
	for _, u := range all {
		at := c.Fset.Position(u.pos)
		message := u.finding.message(c.path)
		k := key{at.Filename, at.Line, message}
		if u.finding.Rule == ruleDefer {
			k.message = "" // report a call and a call on its result only once
		}
		if seen[k] {
			continue
		}
		seen[k] = true
		c.Report(analysis.Diagnostic{Pos: u.pos, Category: string(u.finding.Rule), Message: message})
	}
}

// export exports the facts of exported functions and variables for packages that import this one.
func (c *checker) export() {
	summaries := map[types.Object]*summary{}
	of := func(obj types.Object) *summary {
		if summaries[obj] == nil {
			summaries[obj] = &summary{Module: c.module}
		}
		return summaries[obj]
	}
	for obj, f := range c.byObject {
		if !obj.Exported() || f.outer != nil {
			continue
		}
		if f.durable != nil {
			of(obj).Durable = f.durable
		}
		if f.unordered {
			of(obj).Unordered = true
		}
		for _, r := range rules {
			if found, ok := f.reaches[r]; ok {
				of(obj).Reaches = append(of(obj).Reaches, found)
			}
		}
	}
	for fn := range c.mutations.methods {
		if fn.Exported() {
			of(fn).Mutates = true
		}
	}
	for v := range c.mutations.variables {
		if v.Pkg() == c.Pkg && v.Exported() {
			of(v).Mutable = true
		}
	}
	for obj, s := range summaries {
		c.ExportObjectFact(obj, s)
	}
}

// orderLeak reports a range over a map whose order has an effect after the loop. It also records that
// f returns a slice in this order.
func (c *checker) orderLeak(f *function, loop *mapLoop) {
	if loop.reported {
		return
	}
	leak, unordered := newLeakCheck(c, f, loop.stmt).find()
	f.unordered = f.unordered || unordered
	if leak != "" {
		adv := advice{ruleMapOrder, leak + " in another order on each replay", durableOrder.instead}
		c.use(f, loop.stmt.Pos(), adv.about("ranging over "+loop.name))
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
	c.use(f, loop.stmt.Pos(), adv.about("ranging over "+loop.name))
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
// during initialization.
func (c *checker) initialiser(v *types.Var, value ast.Expr) {
	f := c.add(v, v.Name(), value)
	w := c.newWalker(f, value)
	ast.Inspect(value, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		_, id := calledName(call)
		if fn, ok := calleeOf(c.TypesInfo, call).(*types.Func); ok && fn.Pkg() != nil {
			w.called[id] = call
			w.orders[call] = ordered
			w.function(id, call.Pos(), fn)
		}
		return true
	})
	f.uses = slices.DeleteFunc(f.uses, func(u use) bool { return !dependsOnProcess(u.finding.Rule) })
	f.initialiser = true
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
		part: map[ast.Node]bool{}, orders: map[*ast.CallExpr]order{},
	}
	for obj, lit := range w.literals {
		w.names[lit] = obj
	}
	return w
}
