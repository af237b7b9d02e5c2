package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A leakCheck looks for effects of a map's iteration order after a range over the map.
type leakCheck struct {
	*checker
	f    *function
	loop *mapLoop

	key      types.Object
	changing map[types.Object]bool // variables whose value depends on the iteration
	stack    []ast.Node            // path from the loop's body to the current node
	counts   bool                  // a variable outside of the loop accumulates values
	breaks   bool                  // the loop may end early
	leak     string                // description of the effect; empty without one
	slice    types.Object          // a slice in the map's order
}

func newLeakCheck(c *checker, f *function, loop *mapLoop) *leakCheck {
	l := &leakCheck{checker: c, f: f, loop: loop, changing: map[types.Object]bool{}}
	for _, e := range []ast.Expr{loop.key, loop.value} {
		if id, ok := e.(*ast.Ident); ok && !isBlank(id) {
			l.changing[c.TypesInfo.ObjectOf(id)] = true
		}
	}
	if id, ok := loop.key.(*ast.Ident); ok && !isBlank(id) && !loop.values {
		l.key = c.TypesInfo.ObjectOf(id)
	}
	return l
}

// find returns the effect of the iteration order after the loop, or an empty string.
// unordered reports whether the function returns a slice in this order.
func (l *leakCheck) find() (leak string, unordered bool) {
	ast.Inspect(l.loop.body, l.learn)
	ast.Inspect(l.loop.body, l.visit)
	switch {
	case l.leak != "":
		return l.leak, false
	case l.counts && (l.breaks || l.loop.stops):
		return "stops early,", false
	case l.slice == nil:
		return "", false
	case !l.f.root().orchestrator && l.f.outer == nil && l.f.returns(l.TypesInfo, l.slice):
		return "", true
	}
	return "appends to " + l.slice.Name() + ", which is not sorted afterwards,", false
}

// learn collects the variables that depend on the iteration: variables declared within the loop, and
// outer variables that the loop changes.
func (l *leakCheck) learn(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Ident:
		if v, ok := l.TypesInfo.Defs[n].(*types.Var); ok {
			l.changing[v] = true
		}
	case *ast.AssignStmt:
		for i, e := range n.Lhs {
			v := rootVariable(l.TypesInfo, e)
			if v == nil {
				continue
			}
			constant := n.Tok == token.ASSIGN && len(n.Lhs) == len(n.Rhs) && l.isConstant(n.Rhs[i])
			if !constant {
				l.changing[v] = true
			}
		}
	case *ast.IncDecStmt:
		if v := rootVariable(l.TypesInfo, n.X); v != nil {
			l.changing[v] = true
		}
	}
	return true
}

func (l *leakCheck) isConstant(e ast.Expr) bool {
	tv := l.TypesInfo.Types[e]
	return tv.Value != nil || tv.IsNil()
}

// visit checks the statements that can have an effect after the loop.
func (l *leakCheck) visit(n ast.Node) bool {
	if n == nil {
		l.stack = l.stack[:len(l.stack)-1]
		return true
	}
	l.stack = append(l.stack, n)
	if l.leak != "" {
		return true
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, target := range n.Lhs {
			value := n.Rhs[0]
			if len(n.Lhs) == len(n.Rhs) {
				value = n.Rhs[i]
			}
			l.assign(n.Tok, target, value)
		}
	case *ast.IncDecStmt:
		if l.isOutside(n.X) && !l.isForOneKey() {
			l.counts = true
		}
	case *ast.ReturnStmt:
		if !l.inLiteral() && !l.loop.callback && !l.isForOneKey() {
			for _, e := range n.Results {
				if l.depends(e) {
					l.leak = "returns " + text(e) + " for the first key,"
				}
			}
		}
	case *ast.BranchStmt:
		l.breaks = l.breaks || l.leaves(n)
	case *ast.CallExpr:
		l.write(n)
	}
	return true
}

// assign checks an assignment to target.
func (l *leakCheck) assign(op token.Token, target, value ast.Expr) {
	if op == token.DEFINE || isBlank(target) || !l.isOutside(target) || l.isForOneKey() {
		return
	}
	basic, _ := under(l.TypesInfo.TypeOf(target)).(*types.Basic)
	if op == token.ASSIGN {
		l.set(target, value, basic)
		return
	}
	l.counts = true
	if !l.depends(value) {
		return // each iteration does the same
	}
	switch op {
	case token.AND_ASSIGN, token.OR_ASSIGN, token.XOR_ASSIGN, token.AND_NOT_ASSIGN:
		return
	case token.ADD_ASSIGN, token.SUB_ASSIGN, token.MUL_ASSIGN:
		if basic != nil && basic.Info()&types.IsInteger != 0 {
			return
		}
	default: // the other operators do not commute
	}
	if l.isElementForKey(target) {
		return
	}
	l.leak = "accumulates " + text(target)
	if basic != nil && basic.Info()&(types.IsFloat|types.IsComplex) != 0 {
		l.leak = "adds up " + text(target) + ", whose rounding depends on the order,"
	}
}

// set checks a plain assignment.
func (l *leakCheck) set(target, value ast.Expr, basic *types.Basic) {
	if call, ok := ast.Unparen(value).(*ast.CallExpr); ok {
		fn, first := calleeOf(l.TypesInfo, call), len(call.Args) > 0 && same(call.Args[0], target)
		if first && hasEffect(fn, carriesOrder) {
			l.appends(target, call)
			return
		}
		if b, ok := fn.(*types.Builtin); ok {
			switch {
			case b.Name() == "append" && first:
				l.appends(target, call)
				return
			case (b.Name() == "max" || b.Name() == "min") && (first || same(call.Args[len(call.Args)-1], target)):
				return
			}
		}
	}
	if !l.depends(value) || l.isElementForKey(target) {
		return // each iteration sets the same value or its own element
	}
	if b, ok := ast.Unparen(value).(*ast.BinaryExpr); ok && (same(b.X, target) || same(b.Y, target)) && commutes(b.Op, basic) {
		l.counts = true
		return
	}
	if v := rootVariable(l.TypesInfo, target); v == nil || l.isCompared(target, value) || isIndexed(target) && l.f.settles(l.TypesInfo, v, l.loop.node.End()) {
		return
	}
	l.leak = "sets " + text(target) + " to a value that depends on the iteration,"
}

func (l *leakCheck) appends(target ast.Expr, call *ast.CallExpr) {
	l.counts = true
	depends := false
	for _, arg := range call.Args[1:] {
		depends = depends || l.depends(arg)
	}
	v := rootVariable(l.TypesInfo, target)
	if !depends || v == nil || l.isElementForKey(target) || l.f.settles(l.TypesInfo, v, l.loop.node.End()) {
		return
	}
	l.slice = v
}

// write checks a call that may write to a variable outside of the loop.
func (l *leakCheck) write(n *ast.CallExpr) {
	to, args := l.destination(n)
	if to == nil || !l.isOutside(to) || l.isForOneKey() || l.isElementForKey(to) {
		return
	}
	for _, arg := range args {
		if l.depends(arg) {
			l.leak = "writes to " + text(to)
		}
	}
}

// destination returns the variable that a call writes to, nil if it writes to no variable, and the values that
// it writes.
func (l *leakCheck) destination(n *ast.CallExpr) (to ast.Expr, values []ast.Expr) {
	if b, ok := calleeOf(l.TypesInfo, n).(*types.Builtin); ok && b.Name() == "copy" {
		return n.Args[0], n.Args
	}
	fn, ok := calleeOf(l.TypesInfo, n).(*types.Func)
	if !ok || fn.Pkg() == nil || !isStandard(packagePath(fn.Pkg()), nil) {
		return nil, nil
	}
	if to = writerOf(fn, n); to != nil {
		return to, append(slices.Clone(n.Args), n.Fun)
	}
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok || fn.Signature().Recv() == nil {
		return nil, nil
	}
	switch name := fn.Name(); {
	case hasEffect(fn, recordsCalls):
		if name == "Add" && l.isKey(n.Args[0]) {
			return nil, nil // a list for each key
		}
	case strings.HasPrefix(name, "Write"), strings.HasPrefix(name, "Encode"):
	default:
		return nil, nil
	}
	if inner, ok := ast.Unparen(sel.X).(*ast.CallExpr); ok {
		if made, ok := calleeOf(l.TypesInfo, inner).(*types.Func); ok {
			return writerOf(made, inner), n.Args
		}
	}
	return sel.X, n.Args
}

// depends reports whether the value of e may differ between iterations.
func (l *leakCheck) depends(e ast.Expr) bool { return mentionsAny(l.TypesInfo, e, l.changing) }

// isOutside reports whether e is a variable that is declared outside of the loop, or a part of one.
func (l *leakCheck) isOutside(e ast.Expr) bool {
	v := rootVariable(l.TypesInfo, e)
	return v != nil && (v.Pos() < l.loop.scope.Pos() || v.Pos() >= l.loop.scope.End())
}

// isElementForKey reports whether e is the element for the current key, m[k], or a field of it. No
// other iteration changes it.
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

// isForOneKey reports whether the current node runs for at most one key: an enclosing if compares the key
// with a value that does not change.
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

// isCompared reports whether an enclosing if compares target with value, so that the maximum or
// minimum of all values remains.
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
				default: // does not compare the order
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

// guarded reports whether the current node is in the body of an if whose condition satisfies holds.
func (l *leakCheck) guarded(holds func(cond ast.Expr) bool) bool {
	for i, n := range l.stack {
		if s, ok := n.(*ast.IfStmt); ok && i+1 < len(l.stack) && l.stack[i+1] == ast.Node(s.Body) && holds(s.Cond) {
			return true
		}
	}
	return false
}

// inLiteral reports whether the current node is in a function literal within the loop.
func (l *leakCheck) inLiteral() bool {
	for _, n := range l.stack {
		if _, ok := n.(*ast.FuncLit); ok {
			return true
		}
	}
	return false
}

// leaves reports whether n ends the loop before its last iteration.
func (l *leakCheck) leaves(n *ast.BranchStmt) bool {
	if n.Tok == token.FALLTHROUGH || l.inLiteral() || l.isForOneKey() {
		return false
	}
	if n.Label != nil {
		// A label within the loop does not end it.
		target := l.TypesInfo.Uses[n.Label]
		return target == nil || target.Pos() < l.loop.scope.Pos() && !(n.Tok == token.CONTINUE && l.isLabeled(target))
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

// isLabeled reports whether label is the label of this loop.
func (l *leakCheck) isLabeled(label types.Object) bool {
	found := false
	ast.Inspect(l.f.root().body, func(n ast.Node) bool {
		if s, ok := n.(*ast.LabeledStmt); ok && l.TypesInfo.Defs[s.Label] == label {
			found = ast.Node(s.Stmt) == l.loop.node
		}
		return !found
	})
	return found
}
