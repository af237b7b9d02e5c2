package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// mutations contains the changes that a package makes while the program runs.
type mutations struct {
	*checker
	methods   map[*types.Func]bool // methods that change their receiver
	variables map[*types.Var]bool  // package-level variables that change
	written   map[*ast.Ident]bool  // names of package-level variables at places that change them
}

// findMutations returns the mutations of the package that c analyzes.
func findMutations(c *checker) *mutations {
	m := &mutations{checker: c, methods: map[*types.Func]bool{}, variables: map[*types.Var]bool{}, written: map[*ast.Ident]bool{}}
	m.findMethods()
	m.findVariables()
	return m
}

// findMethods finds the methods that change their receiver: they assign a part of it, or call such a
// method on a part of it.
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

// mutates reports whether fn changes its receiver. Methods of types in other modules do not count.
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

// findVariables finds the variables that change outside of their declaration and of init functions:
// they are assigned, in whole or in part, their address is taken, or a method is called that changes
// its receiver. Tests that replace a variable of the tested code do not count, nor do lines with an
// ignore comment.
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

// changes calls note for everything that n changes or may change. Function literals do not run during
// initialization.
func (m *mutations) changes(n ast.Node, atInit bool, note func(e ast.Expr, how change, atInit bool)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if atInit {
				m.changes(n.Body, false, note)
				return false
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if n.Tok != token.DEFINE || !m.defines(e) {
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

// defines reports whether e, on the left side of a :=, is a new variable.
func (m *mutations) defines(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && m.TypesInfo.Defs[id] != nil
}

// callChanges calls note for everything that a call changes.
func (m *mutations) callChanges(n *ast.CallExpr, note func(e ast.Expr, how change)) {
	switch fn := calleeOf(m.TypesInfo, n).(type) {
	case *types.Builtin:
		if fn.Name() == "delete" || fn.Name() == "clear" || fn.Name() == "copy" {
			note(n.Args[0], assignedPart)
		}
	case *types.Func:
		if hasEffect(fn, sortsInPlace) && len(n.Args) > 0 {
			note(n.Args[0], assignedPart)
		}
		if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && m.mutates(fn) {
			note(sel.X, called)
		}
	}
}

// standardMutators are types of the standard library whose methods change their receiver and that are
// often stored in variables.
var standardMutators = map[string]bool{
	"bytes.Buffer": true, "strings.Builder": true, "container/list.List": true,
	"math/rand.Rand": true, "math/rand/v2.Rand": true, "math/rand/v2.PCG": true, "math/rand/v2.ChaCha8": true,
}

// changesReceiver reports whether a change of e, in a method with the given receiver, affects the
// value that the method is called on.
func changesReceiver(info *types.Info, receiver types.Object, e ast.Expr, how change) bool {
	_, whole := ast.Unparen(e).(*ast.Ident)
	shared := isPointer(receiver.Type()) || reachesShared(info, e)
	switch how {
	case called:
		return true
	case assignedPart:
		return true // of a map
	case assigned:
		return shared && !whole // an assignment to the receiver itself changes only a copy
	default:
		return false
	}
}

// reachesShared reports whether e, a part of a copied value, is shared with the original: it is reached
// through a pointer, a slice or a map.
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
