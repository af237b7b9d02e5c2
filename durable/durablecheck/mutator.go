package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// The mutations of a package are what it changes while it runs.
type mutations struct {
	*checker
	methods   map[*types.Func]bool // that change what they are called on
	variables map[*types.Var]bool  // of packages
	written   map[*ast.Ident]bool  // names of variables of packages, where they are changed
}

// findMutations returns those of the package that c analyses.
func findMutations(c *checker) *mutations {
	m := &mutations{checker: c, methods: map[*types.Func]bool{}, variables: map[*types.Var]bool{}, written: map[*ast.Ident]bool{}}
	m.findMethods()
	m.findVariables()
	return m
}

// findMethods finds the methods that change what they are called on: those that
// assign a part of their receiver, or call such a method on a part of it.
func (m *mutations) findMethods() {
	type method struct {
		fn       *types.Func
		receiver types.Object
		body     *ast.BlockStmt
	}
	var methods []method
	for _, file := range m.Files {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv == nil || d.Body == nil || len(d.Recv.List[0].Names) == 0 {
				continue
			}
			fn, _ := m.TypesInfo.Defs[d.Name].(*types.Func)
			receiver := m.TypesInfo.Defs[d.Recv.List[0].Names[0]]
			if fn != nil && receiver != nil {
				methods = append(methods, method{fn, receiver, d.Body})
			}
		}
	}
	for again := true; again; {
		again = false
		for _, method := range methods {
			if m.methods[method.fn] {
				continue
			}
			m.changes(method.body, false, func(e ast.Expr, how change, _ bool) {
				if rootVariable(m.TypesInfo, e) == method.receiver && changesReceiver(m.TypesInfo, method.receiver, e, how) {
					m.methods[method.fn], again = true, true
				}
			})
		}
	}
}

// mutates reports whether fn changes what it is called on. Of other modules'
// types that is their own affair.
func (m *mutations) mutates(fn *types.Func) bool {
	if fn.Signature().Recv() == nil {
		return false
	}
	if fn.Pkg() == m.Pkg {
		return m.methods[fn]
	}
	if standardMutators[packagePath(fn.Pkg())+"."+receiver(fn)] {
		return true
	}
	s := m.summaryOf(fn)
	return s != nil && s.Mutates && s.Module == m.module
}

// findVariables finds the variables that change: those that are assigned, in
// whole or in part, whose address is taken, or on which a method is called that
// changes them, anywhere but in their declaration and in init functions. Tests
// that replace a variable of the package do not count, and neither do lines with
// a comment that allows it.
func (m *mutations) findVariables() {
	for _, file := range m.Files {
		test := m.isTest(file.Pos())
		note := func(e ast.Expr, how change, atInit bool) {
			id := root(m.TypesInfo, e)
			if id == nil {
				return
			}
			v, ok := m.TypesInfo.Uses[id].(*types.Var)
			if !ok || !isPackageLevel(v) {
				return
			}
			m.written[id] = true
			if !atInit && !m.ignores.at(e.Pos()) && (!test || m.isTest(v.Pos())) {
				m.variables[v] = true
			}
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			m.changes(decl, !ok || fn.Recv == nil && fn.Name.Name == "init", note)
		}
	}
}

// changes calls note for everything that n changes, or may. What a function
// literal does is not done while the package is initialised.
func (m *mutations) changes(n ast.Node, atInit bool, note func(e ast.Expr, how change, atInit bool)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if atInit {
				m.changes(n.Body, false, note)
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
			m.callChanges(n, func(e ast.Expr, how change) { note(e, how, atInit) })
		}
		return true
	})
}

// callChanges calls note for what a call changes.
func (m *mutations) callChanges(n *ast.CallExpr, note func(e ast.Expr, how change)) {
	switch fn := calleeOf(m.TypesInfo, n).(type) {
	case *types.Builtin:
		if fn.Name() == "delete" || fn.Name() == "clear" {
			note(n.Args[0], assignedPart)
		}
	case *types.Func:
		if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && m.mutates(fn) {
			note(sel.X, called)
		}
	}
}

// standardMutators are the types of the standard library whose methods change
// what they are called on, and that are likely to be kept in variables.
var standardMutators = map[string]bool{
	"bytes.Buffer": true, "strings.Builder": true, "container/list.List": true,
	"math/rand.Rand": true, "math/rand/v2.Rand": true, "math/rand/v2.PCG": true, "math/rand/v2.ChaCha8": true,
}

// changesReceiver reports whether a change of e, in a method with the given
// receiver, changes what the method was called on.
func changesReceiver(info *types.Info, receiver types.Object, e ast.Expr, how change) bool {
	_, whole := ast.Unparen(e).(*ast.Ident)
	shared := isPointer(receiver.Type()) || reachesShared(info, e)
	switch how {
	case called:
		return true
	case assignedPart:
		return true // of a map
	case assigned:
		return shared && !whole // the receiver itself is the method's own copy
	default:
		return false
	}
}

// reachesShared reports whether e, a part of a value that was copied, is still
// shared with the original: it goes through a pointer, a slice or a map.
func reachesShared(info *types.Info, e ast.Expr) bool {
	for {
		var x ast.Expr
		switch n := ast.Unparen(e).(type) {
		case *ast.SelectorExpr:
			x = n.X
		case *ast.IndexExpr:
			x = n.X
		case *ast.SliceExpr:
			x = n.X
		case *ast.StarExpr:
			x = n.X
		default:
			return false
		}
		switch under(info.TypeOf(x)).(type) {
		case *types.Pointer, *types.Slice, *types.Map:
			return true
		}
		e = x
	}
}

func isPointer(t types.Type) bool {
	_, ok := under(t).(*types.Pointer)
	return ok
}
