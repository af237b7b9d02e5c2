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
