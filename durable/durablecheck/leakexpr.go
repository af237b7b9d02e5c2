package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// commutes reports whether repeated application of op does not depend on the order of the operands.
func commutes(op token.Token, basic *types.Basic) bool {
	switch op {
	case token.AND, token.OR, token.XOR, token.LAND, token.LOR:
		return true
	case token.ADD, token.MUL:
		return basic != nil && basic.Info()&types.IsInteger != 0
	default:
		return false
	}
}

// same reports whether a and b have the same source text.
func same(a, b ast.Expr) bool {
	return types.ExprString(ast.Unparen(a)) == types.ExprString(ast.Unparen(b))
}

func isIndexed(e ast.Expr) bool {
	_, ok := ast.Unparen(e).(*ast.IndexExpr)
	return ok
}

// writerOf returns the variable that a call of fn passes as an io.Writer, nil if fn has no such parameter.
func writerOf(fn *types.Func, n *ast.CallExpr) ast.Expr {
	params := fn.Signature().Params()
	for i := range min(params.Len(), len(n.Args)) {
		if !isNamed(params.At(i).Type(), "io", "Writer") {
			continue
		}
		to := ast.Unparen(n.Args[i])
		if u, ok := to.(*ast.UnaryExpr); ok {
			to = u.X
		}
		return to
	}
	return nil
}
