package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// namedLiterals returns the local variables of n that never hold anything but
// one function literal.
func namedLiterals(info *types.Info, n ast.Node) map[types.Object]*ast.FuncLit {
	values := map[types.Object][]ast.Expr{}
	declared := map[types.Object]bool{}
	note := func(e, value ast.Expr) {
		id, ok := e.(*ast.Ident)
		if !ok {
			return
		}
		if obj := info.Defs[id]; obj != nil {
			declared[obj] = true
		}
		if obj := info.ObjectOf(id); obj != nil && value != noValue {
			values[obj] = append(values[obj], value)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				var value ast.Expr
				if len(n.Lhs) == len(n.Rhs) {
					value = n.Rhs[i]
				}
				note(lhs, value)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				value := noValue
				if i < len(n.Values) {
					value = n.Values[i]
				}
				note(name, value)
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(ast.Unparen(n.X), nil)
			}
		}
		return true
	})
	named := map[types.Object]*ast.FuncLit{}
	for obj, vs := range values {
		if len(vs) != 1 || vs[0] == nil || !declared[obj] {
			continue
		}
		if lit, ok := ast.Unparen(vs[0]).(*ast.FuncLit); ok {
			named[obj] = lit
		}
	}
	return named
}

// noValue stands for that of a variable that is only declared.
var noValue ast.Expr = &ast.BadExpr{}
