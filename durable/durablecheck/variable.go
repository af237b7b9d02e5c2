package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

var (
	writing = &advice{ruleVariable, "changes what all instances and every replay share", "keep the value in a local variable and return it"}
	reading = &advice{ruleVariable, "reads what the program changes while it runs, so that a replay can find another value", "pass the value in as input or read it in an activity"}
)

// A change is a way to change a variable.
type change int

const (
	assigned     change = iota // in whole or in part
	assignedPart               // in part
	addressed                  // by whoever gets its address
	called                     // by a method
)

// mutableVariables returns the package-level variables that the package at
// hand changes, and notes where: those that are assigned, in whole or in part,
// whose address is taken, or on which a method is called that changes them,
// anywhere but in their declaration and in init functions. Tests that replace a
// variable of the package do not count, and neither do lines with a comment
// that allows it.
func (c *checker) mutableVariables() map[*types.Var]bool {
	c.written = map[*ast.Ident]bool{}
	mutable := map[*types.Var]bool{}
	for _, file := range c.Files {
		test := c.isTest(file.Pos())
		note := func(e ast.Expr, how change, atInit bool) {
			id := root(c.TypesInfo, e)
			if id == nil {
				return
			}
			v, ok := c.TypesInfo.Uses[id].(*types.Var)
			if !ok || !isPackageLevel(v) {
				return
			}
			c.written[id] = true
			if !atInit && !c.ignores.at(e.Pos()) && (!test || c.isTest(v.Pos())) {
				mutable[v] = true
			}
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			c.changes(decl, !ok || fn.Recv == nil && fn.Name.Name == "init", note)
		}
	}
	return mutable
}

// changes calls note for everything that n changes, or may. What a function
// literal does is not done while the package is initialised.
func (c *checker) changes(n ast.Node, atInit bool, note func(e ast.Expr, how change, atInit bool)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if atInit {
				c.changes(n.Body, false, note)
				return false
			}
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					note(e, assigned, atInit)
				}
			}
		case *ast.IncDecStmt:
			note(n.X, assigned, atInit)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if e != nil {
						note(e, assigned, atInit)
					}
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(n.X, addressed, atInit)
			}
		case *ast.CallExpr:
			c.callChanges(n, func(e ast.Expr, how change) { note(e, how, atInit) })
		}
		return true
	})
}

// callChanges calls note for what a call changes.
func (c *checker) callChanges(n *ast.CallExpr, note func(e ast.Expr, how change)) {
	switch fn := calleeOf(c.TypesInfo, n).(type) {
	case *types.Builtin:
		if fn.Name() == "delete" || fn.Name() == "clear" {
			note(n.Args[0], assignedPart)
		}
	case *types.Func:
		if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && c.mutates(fn) {
			note(sel.X, called)
		}
	}
}

// variable looks at a mention of a package-level variable.
func (w *walker) variable(id *ast.Ident, pos token.Pos, v *types.Var) {
	if packagePath(v.Pkg()) == durablePath {
		return
	}
	if adv, listed := lookup(v); listed {
		if adv != nil {
			w.use(w.f, pos, adv.about(qualified(v)))
		}
		return
	}
	name := v.Name()
	if v.Pkg() != w.Pkg {
		name = qualified(v)
	}
	switch s := w.summaryOf(v); {
	case w.written[id]:
		w.use(w.f, pos, writing.about("changing package variable "+name))
	case w.mutable[v] || s != nil && s.Mutable:
		w.use(w.f, pos, reading.about("package variable "+name))
	case !w.escaping[id] || w.called[id] != nil || w.f.root().orchestrator:
		if sig := signature(v.Type()); sig == nil || !takesContext(sig) && !isOrchestrator(sig) {
			w.follow(pos, v, kept)
		}
	}
}

// variables collects what it means to mention the package-level variables that
// a declaration declares. One that is initialised with a function stands for
// it. One whose initialiser asks for the time, a random number or the
// environment holds another value in each process.
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

// initialiser collects what the value of v depends on. Function values in it
// run later, if ever.
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

// dependsOnProcess reports whether what breaks r gives a value that another
// process does not get.
func dependsOnProcess(r rule) bool { return r == ruleClock || r == ruleRandom || r == ruleEnv }

func isPackageLevel(v *types.Var) bool {
	return !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}

func (c *checker) isTest(pos token.Pos) bool {
	return strings.HasSuffix(c.Fset.Position(pos).Filename, "_test.go")
}
