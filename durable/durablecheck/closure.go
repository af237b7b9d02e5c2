package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// namedLiterals returns the local variables in n whose only value is a function literal.
func namedLiterals(info *types.Info, n ast.Node) map[types.Object]*ast.FuncLit {
	values := map[types.Object][]ast.Expr{} // nil stands for an unknown value
	declared := map[types.Object]bool{}
	note := func(e ast.Expr, value ...ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			declared[info.Defs[id]] = true
			values[info.ObjectOf(id)] = append(values[info.ObjectOf(id)], value...)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					note(lhs, n.Rhs[i])
				} else {
					note(lhs, nil)
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				note(name, n.Values[min(i, len(n.Values)):min(i+1, len(n.Values))]...)
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
		if obj == nil || !declared[obj] || len(vs) != 1 || vs[0] == nil {
			continue
		}
		if lit, ok := ast.Unparen(vs[0]).(*ast.FuncLit); ok {
			named[obj] = lit
		}
	}
	return named
}
