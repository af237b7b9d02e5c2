package durablecheck

import (
	"go/ast"
	"go/types"
)

// standardMutators are the types of the standard library whose methods change
// what they are called on, and that are likely to be kept in variables.
var standardMutators = map[string]bool{
	"bytes.Buffer": true, "strings.Builder": true, "container/list.List": true,
	"math/rand.Rand": true, "math/rand/v2.Rand": true, "math/rand/v2.PCG": true, "math/rand/v2.ChaCha8": true,
}

// findMutators finds the methods of the package at hand that change what they
// are called on: those that assign a part of their receiver, or call such a
// method on a part of it.
func (c *checker) findMutators() {
	c.mutators = map[*types.Func]bool{}
	type method struct {
		fn       *types.Func
		receiver types.Object
		body     *ast.BlockStmt
	}
	var methods []method
	for _, file := range c.Files {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv == nil || d.Body == nil || len(d.Recv.List[0].Names) == 0 {
				continue
			}
			fn, _ := c.TypesInfo.Defs[d.Name].(*types.Func)
			receiver := c.TypesInfo.Defs[d.Recv.List[0].Names[0]]
			if fn != nil && receiver != nil {
				methods = append(methods, method{fn, receiver, d.Body})
			}
		}
	}
	for again := true; again; {
		again = false
		for _, m := range methods {
			if c.mutators[m.fn] {
				continue
			}
			c.changes(m.body, false, func(e ast.Expr, how change, _ bool) {
				if rootVariable(c.TypesInfo, e) == m.receiver && changesReceiver(c.TypesInfo, m.receiver, e, how) {
					c.mutators[m.fn], again = true, true
				}
			})
		}
	}
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

// mutates reports whether fn changes what it is called on. Of other modules'
// types that is their own affair.
func (c *checker) mutates(fn *types.Func) bool {
	if fn.Signature().Recv() == nil {
		return false
	}
	if fn.Pkg() == c.Pkg {
		return c.mutators[fn]
	}
	if standardMutators[packagePath(fn.Pkg())+"."+receiver(fn)] {
		return true
	}
	s := c.summaryOf(fn)
	return s != nil && s.Mutates && s.Module == c.module
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
