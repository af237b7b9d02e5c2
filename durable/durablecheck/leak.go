package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// A leakCheck looks for a way out of a range over a map on which its order can
// be seen afterwards.
type leakCheck struct {
	*checker
	f    *function
	loop *ast.RangeStmt

	key      types.Object
	changing map[types.Object]bool // the variables whose value depends on the turn
	stack    []ast.Node            // from the loop's body to the node at hand
	counts   bool                  // something outside adds up from turn to turn
	breaks   bool                  // the loop can end early
	leak     string                // what happens, empty if nothing
	slice    types.Object          // a slice that is in the map's order
}

// orderLeak reports that the order of a range over a map can be seen behind
// it, or notes that f returns a slice in that order.
func (c *checker) orderLeak(f *function, loop *mapLoop) {
	if loop.reported {
		return
	}
	l := &leakCheck{checker: c, f: f, loop: loop.stmt, changing: map[types.Object]bool{}}
	for _, e := range []ast.Expr{loop.stmt.Key, loop.stmt.Value} {
		if id, ok := e.(*ast.Ident); ok && !isBlank(id) {
			l.changing[c.TypesInfo.ObjectOf(id)] = true
		}
	}
	if id, ok := loop.stmt.Key.(*ast.Ident); ok && !isBlank(id) && !isSequenceOfValues(c.TypesInfo, loop.stmt.X) {
		l.key = c.TypesInfo.ObjectOf(id)
	}
	ast.Inspect(loop.stmt.Body, l.learn)
	ast.Inspect(loop.stmt.Body, l.visit)
	if l.leak == "" && l.counts && l.breaks {
		l.leak = "stops early at one or another key"
	}
	if l.leak == "" && l.slice != nil {
		if !f.root().orchestrator && f.outer == nil && c.isReturned(f, l.slice) {
			f.unordered = true
			return
		}
		l.leak = "appends to " + l.slice.Name() + ", which is not sorted afterwards,"
	}
	if l.leak != "" {
		adv := advice{ruleMapOrder, l.leak + " in another order on each replay", durableOrder.instead}
		c.use(f, loop.stmt.Pos(), adv.about("ranging over "+loop.name))
	}
}

// isSequenceOfValues reports whether x is maps.Values(m), whose elements may
// repeat.
func isSequenceOfValues(info *types.Info, x ast.Expr) bool {
	call, ok := ast.Unparen(x).(*ast.CallExpr)
	if !ok {
		return false
	}
	fn := calleeOf(info, call)
	return fn != nil && fn.Name() == "Values"
}

// learn collects the variables that depend on the turn: those that are
// declared within the loop, and those outside that are changed by it.
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

// visit looks at the statements that can carry something out of the loop.
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
		if !l.inLiteral() && !l.isForOneKey() {
			for _, e := range n.Results {
				if l.depends(e) {
					l.leak = "returns " + text(e) + " for whichever key comes first,"
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

// assign looks at an assignment to target.
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
		return // each turn does the same
	}
	switch op {
	case token.AND_ASSIGN, token.OR_ASSIGN, token.XOR_ASSIGN, token.AND_NOT_ASSIGN:
		return
	case token.ADD_ASSIGN, token.SUB_ASSIGN, token.MUL_ASSIGN:
		if basic != nil && basic.Info()&types.IsInteger != 0 {
			return
		}
	default: // the others do not commute
	}
	if l.isElementForKey(target) {
		return
	}
	l.leak = "accumulates " + text(target)
	if basic != nil && basic.Info()&(types.IsFloat|types.IsComplex) != 0 {
		l.leak = "adds up " + text(target) + ", whose rounding depends on it,"
	}
}

// set looks at a plain assignment.
func (l *leakCheck) set(target, value ast.Expr, basic *types.Basic) {
	if call, ok := ast.Unparen(value).(*ast.CallExpr); ok {
		if b, ok := calleeOf(l.TypesInfo, call).(*types.Builtin); ok {
			first := len(call.Args) > 0 && same(call.Args[0], target)
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
		return // each turn sets the same value, or an element of its own
	}
	if b, ok := ast.Unparen(value).(*ast.BinaryExpr); ok && (same(b.X, target) || same(b.Y, target)) && commutes(b.Op, basic) {
		l.counts = true
		return
	}
	if v := rootVariable(l.TypesInfo, target); v == nil || l.isCompared(target, value) || isIndexed(target) && l.sortedAfter(l.f, v, l.loop.End()) {
		return
	}
	l.leak = "sets " + text(target) + ", to what depends on it,"
}

func (l *leakCheck) appends(target ast.Expr, call *ast.CallExpr) {
	l.counts = true
	depends := false
	for _, arg := range call.Args[1:] {
		depends = depends || l.depends(arg)
	}
	v := rootVariable(l.TypesInfo, target)
	if !depends || v == nil || l.isElementForKey(target) || l.sortedAfter(l.f, v, l.loop.End()) {
		return
	}
	l.slice = v
}

// write looks at a call that may add to something outside.
func (l *leakCheck) write(n *ast.CallExpr) {
	fn, ok := calleeOf(l.TypesInfo, n).(*types.Func)
	if !ok || fn.Pkg() == nil || !isStandard(packagePath(fn.Pkg()), nil) || l.isForOneKey() {
		return
	}
	to, args := ast.Expr(nil), n.Args
	switch name := fn.Name(); {
	case packagePath(fn.Pkg()) == "fmt" && strings.HasPrefix(name, "Fprint"), packagePath(fn.Pkg()) == "io" && name == "WriteString":
		to, args = n.Args[0], n.Args[1:]
		if u, ok := ast.Unparen(to).(*ast.UnaryExpr); ok {
			to = u.X
		}
	case fn.Signature().Recv() == nil:
		return
	case strings.HasPrefix(name, "Write"), strings.HasPrefix(name, "Encode"), strings.HasPrefix(name, "Push"):
		if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
			to = sel.X
		}
	}
	if to == nil || !l.isOutside(to) {
		return
	}
	for _, arg := range args {
		if l.depends(arg) {
			l.leak = "writes to " + text(to)
		}
	}
}
