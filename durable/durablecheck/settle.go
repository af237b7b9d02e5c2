package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// A settleCheck looks for effects of the order of a variable.
type settleCheck struct {
	info *types.Info
	body ast.Node // the function
	v    types.Object
	from token.Pos // v is in map order from here
	seen map[types.Object]bool
}

// settles reports whether the map order that v has at pos has no effect in body. Either body sorts v,
// or each part of v, before it uses the order, or all uses ignore the order.
func settles(info *types.Info, body ast.Node, v types.Object, pos token.Pos) bool {
	return (&settleCheck{info, body, v, pos, map[types.Object]bool{v: true}}).holds()
}

func (s *settleCheck) holds() bool {
	if at := s.sortedAt(); at.IsValid() {
		return !s.isUsedBefore(at)
	}
	return s.isLocal() && s.allIgnoreOrder()
}

// sortedAt returns the position of the first sort of v.
func (s *settleCheck) sortedAt() (at token.Pos) {
	of := map[types.Object]bool{s.v: true}
	ast.Inspect(s.body, func(n ast.Node) bool {
		if at.IsValid() {
			return false
		}
		switch n := n.(type) {
		case *ast.RangeStmt:
			if mentionsAny(s.info, n.X, of) {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if id, ok := e.(*ast.Ident); ok && !isBlank(id) {
						of[s.info.ObjectOf(id)] = true
					}
				}
			}
		case *ast.AssignStmt:
			if n.Pos() >= s.from && s.sortsItself(n) {
				at = n.Pos()
			}
		case *ast.CallExpr:
			if n.Pos() >= s.from && sortsAny(s.info, n, of) {
				at = n.Pos()
			}
		}
		return true
	})
	return at
}

// sortsItself reports whether n assigns a sorted copy of v to v.
func (s *settleCheck) sortsItself(n *ast.AssignStmt) bool {
	if len(n.Lhs) != 1 || len(n.Rhs) != 1 || !s.is(n.Lhs[0]) {
		return false
	}
	call, ok := ast.Unparen(n.Rhs[0]).(*ast.CallExpr)
	return ok && hasEffect(calleeOf(s.info, call), dropsOrder) && s.mentions(call)
}

// isUsedBefore reports whether code between from and end uses the order: it passes v to a durable call,
// makes durable calls in a range over v, or reads a fixed position.
func (s *settleCheck) isUsedBefore(end token.Pos) bool {
	used := false
	ast.Inspect(s.body, func(n ast.Node) bool {
		if n == nil || n.Pos() < s.from || n.Pos() >= end {
			return !used
		}
		switch n := n.(type) {
		case *ast.RangeStmt:
			used = used || s.mentions(n.X) && s.makesDurableCalls(n.Body)
		case *ast.CallExpr:
			used = used || s.passes(n)
		case *ast.IndexExpr:
			used = used || s.is(n.X) && s.info.Types[n.Index].Value != nil
		case *ast.ReturnStmt:
			used = used || slices.ContainsFunc(n.Results, s.is)
		}
		return !used
	})
	return used
}

// passes reports whether n is a durable call, or a standard function that exposes the order, with v
// among its arguments.
func (s *settleCheck) passes(n *ast.CallExpr) bool {
	effect, listed := effectOf(calleeOf(s.info, n))
	if !isDurable(s.info, n) && !(listed && effect == exposesOrder) {
		return false
	}
	return slices.ContainsFunc(n.Args, s.is)
}

func (s *settleCheck) makesDurableCalls(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isDurable(s.info, call)
		return !found
	})
	return found
}

// isDurable reports whether n itself is a durable call, or passes the Context on.
func isDurable(info *types.Info, n *ast.CallExpr) bool {
	if fn, ok := calleeOf(info, n).(*types.Func); ok && packagePath(fn.Pkg()) == durablePath {
		return isDurableCall(fn)
	}
	sig := signature(info.TypeOf(n.Fun))
	return sig != nil && isOrchestrator(sig)
}

func (s *settleCheck) is(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && s.info.ObjectOf(id) == s.v
}

func (s *settleCheck) mentions(n ast.Node) bool {
	return mentionsAny(s.info, n, map[types.Object]bool{s.v: true})
}

// isLocal reports whether body declares v as a variable, neither as a parameter nor as a result.
func (s *settleCheck) isLocal() bool {
	local := false
	s.inspect(func(id *ast.Ident, outer []ast.Node) {
		if s.info.Defs[id] == s.v {
			local = !slices.ContainsFunc(outer, func(n ast.Node) bool { _, ok := n.(*ast.FuncType); return ok })
		}
	})
	return local
}

func (s *settleCheck) allIgnoreOrder() bool {
	all := true
	s.inspect(func(id *ast.Ident, outer []ast.Node) {
		all = all && (s.info.Uses[id] != s.v || s.ignoresOrder(id, outer))
	})
	return all
}

// inspect calls visit for the identifiers of v with the nodes around them, outermost first.
func (s *settleCheck) inspect(visit func(id *ast.Ident, outer []ast.Node)) {
	var stack []ast.Node
	ast.Inspect(s.body, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if id, ok := n.(*ast.Ident); ok && s.info.ObjectOf(id) == s.v {
			visit(id, stack)
		}
		stack = append(stack, n)
		return true
	})
}

// ignoresOrder reports whether the use id of v, within the nodes outer, does not depend on the order.
func (s *settleCheck) ignoresOrder(id *ast.Ident, outer []ast.Node) bool {
	value := ast.Expr(id)
	for _, n := range slices.Backward(outer) {
		switch n := n.(type) {
		case *ast.ParenExpr:
			value = n
		case *ast.CallExpr:
			effect, listed := effectOf(calleeOf(s.info, n))
			if _, isAppend := calleeOf(s.info, n).(*types.Builtin); isAppend && !listed {
				effect, listed = carriesOrder, calleeOf(s.info, n).Name() == "append"
			}
			switch {
			case listed && effect == dropsOrder:
				return true
			case !listed || effect != carriesOrder || n.Fun == value:
				return false
			}
			value = n
		case *ast.AssignStmt:
			return s.assigns(n, value)
		case *ast.RangeStmt:
			return n.X == value && isBlank(n.Key) && isBlank(n.Value)
		default:
			return false
		}
	}
	return false
}

// assigns reports whether n replaces v, or assigns value to a variable whose order has no effect.
func (s *settleCheck) assigns(n *ast.AssignStmt, value ast.Expr) bool {
	if slices.Contains(n.Lhs, value) {
		return true
	}
	at := slices.Index(n.Rhs, value)
	if at < 0 || len(n.Lhs) != len(n.Rhs) {
		return false
	}
	id, ok := n.Lhs[at].(*ast.Ident)
	if !ok {
		return false
	}
	target := s.info.ObjectOf(id)
	if isBlank(id) || s.seen[target] {
		return true
	}
	s.seen[target] = true
	return (&settleCheck{s.info, s.body, target, value.End(), s.seen}).holds()
}
