package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// commutes reports whether the order of op's operands does not matter over
// many turns.
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

// same reports whether a and b are written alike.
func same(a, b ast.Expr) bool {
	return types.ExprString(ast.Unparen(a)) == types.ExprString(ast.Unparen(b))
}

func isIndexed(e ast.Expr) bool {
	_, ok := ast.Unparen(e).(*ast.IndexExpr)
	return ok
}
