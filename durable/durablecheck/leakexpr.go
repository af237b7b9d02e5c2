package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// depends reports whether the value of e can differ from turn to turn.
func (l *leakCheck) depends(e ast.Expr) bool { return mentionsAny(l.TypesInfo, e, l.changing) }

// isOutside reports whether e is, or is a part of, a variable that is declared
// outside of the loop.
func (l *leakCheck) isOutside(e ast.Expr) bool {
	v := rootVariable(l.TypesInfo, e)
	return v != nil && (v.Pos() < l.loop.Pos() || v.Pos() >= l.loop.End())
}

// isElementForKey reports whether e is the element that belongs to the turn's
// key, which no other turn touches: m[k], or a field of it.
func (l *leakCheck) isElementForKey(e ast.Expr) bool {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.IndexExpr:
			index := ast.Unparen(x.Index)
			if call, ok := index.(*ast.CallExpr); ok && len(call.Args) == 1 && l.TypesInfo.Types[call.Fun].IsType() {
				index = ast.Unparen(call.Args[0])
			}
			if l.isKey(index) {
				return true
			}
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		default:
			return false
		}
	}
}

func (l *leakCheck) isKey(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && l.key != nil && l.TypesInfo.Uses[id] == l.key
}

// isForOneKey reports whether the node at hand runs for at most one key: an if
// around it compares the key with something that stays the same.
func (l *leakCheck) isForOneKey() bool {
	return l.guarded(func(cond ast.Expr) bool { return l.fixesKey(cond) })
}

func (l *leakCheck) fixesKey(cond ast.Expr) bool {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok {
		return false
	}
	switch b.Op {
	case token.LAND:
		return l.fixesKey(b.X) || l.fixesKey(b.Y)
	case token.EQL:
		return l.isKey(b.X) && !l.depends(b.Y) || l.isKey(b.Y) && !l.depends(b.X)
	default:
		return false
	}
}

// isCompared reports whether an if around the node at hand compares target
// with value, so that the greatest or least of all values remains.
func (l *leakCheck) isCompared(target, value ast.Expr) bool {
	pair := func(a, b ast.Expr) bool {
		return same(a, target) && same(b, value) || same(a, value) && same(b, target)
	}
	return l.guarded(func(cond ast.Expr) bool {
		found := false
		ast.Inspect(cond, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				switch n.Op {
				case token.LSS, token.LEQ, token.GTR, token.GEQ:
					found = found || pair(n.X, n.Y)
				default: // says nothing of which is the greater
				}
			case *ast.CallExpr:
				sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
				if !ok {
					return true
				}
				switch sel.Sel.Name {
				case "After", "Before", "Less", "Cmp", "Compare":
					found = found || len(n.Args) == 1 && pair(sel.X, n.Args[0]) || len(n.Args) == 2 && pair(n.Args[0], n.Args[1])
				}
			}
			return true
		})
		return found
	})
}

// guarded reports whether one of the ifs whose body the node at hand is in has
// a condition that holds.
func (l *leakCheck) guarded(holds func(cond ast.Expr) bool) bool {
	for i, n := range l.stack {
		if s, ok := n.(*ast.IfStmt); ok && i+1 < len(l.stack) && l.stack[i+1] == ast.Node(s.Body) && holds(s.Cond) {
			return true
		}
	}
	return false
}

// inLiteral reports whether the node at hand belongs to a function literal in
// the loop.
func (l *leakCheck) inLiteral() bool {
	for _, n := range l.stack {
		if _, ok := n.(*ast.FuncLit); ok {
			return true
		}
	}
	return false
}

// leaves reports whether n ends the loop before its last turn.
func (l *leakCheck) leaves(n *ast.BranchStmt) bool {
	if n.Tok == token.FALLTHROUGH || l.inLiteral() || l.isForOneKey() {
		return false
	}
	if n.Label != nil {
		// Where it goes is inside the loop, or the loop is over.
		target := l.TypesInfo.Uses[n.Label]
		return target == nil || target.Pos() < l.loop.Pos() && !(n.Tok == token.CONTINUE && l.isLabelled(target))
	}
	if n.Tok == token.CONTINUE {
		return false
	}
	for _, outer := range l.stack {
		switch outer.(type) {
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			return false
		}
	}
	return true
}

// isLabelled reports whether label is that of the loop itself.
func (l *leakCheck) isLabelled(label types.Object) bool {
	found := false
	ast.Inspect(l.f.root().body, func(n ast.Node) bool {
		if s, ok := n.(*ast.LabeledStmt); ok && l.TypesInfo.Defs[s.Label] == label {
			found = s.Stmt == ast.Stmt(l.loop)
		}
		return !found
	})
	return found
}

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
