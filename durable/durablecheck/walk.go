package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// What statements and operations break replay, by themselves.
var (
	goStatement = &advice{ruleGo, "runs code whose timing the history does not record", "use durable.Go"}
	selecting   = &advice{ruleSelect, "chooses by a timing that the history does not record", "use durable.AwaitAny"}
	channels    = &advice{ruleChannel, "waits for other goroutines, which the history does not record", "pass values in variables, and use tasks, durable.Go or an event to wait"}
)

// A walker reads the code of one function.
type walker struct {
	*checker
	f        *function
	deferred bool                          // the code runs when f returns or is unwound
	loops    []*mapLoop                    // around the code, the innermost last
	literals map[types.Object]*ast.FuncLit // of the variables that stand for one
	names    map[*ast.FuncLit]types.Object // the reverse
	closures map[types.Object]*function

	// What has been learnt of nodes from those around them.
	called   map[*ast.Ident]*ast.CallExpr // by the names of what is called
	start    map[*ast.Ident]token.Pos     // of the qualified names that they end
	escaping map[ast.Node]bool            // function values that are only handed out
	part     map[ast.Node]bool            // operations that are reported as part of another
	orders   map[*ast.CallExpr]order      // what becomes of the order of results
}

// walk collects what f does in n.
func (c *checker) walk(f *function, n ast.Node) { ast.Inspect(n, c.newWalker(f, n).visit) }

func (c *checker) newWalker(f *function, n ast.Node) *walker {
	w := &walker{
		checker: c, f: f,
		literals: namedLiterals(c.TypesInfo, n), names: map[*ast.FuncLit]types.Object{}, closures: map[types.Object]*function{},
		called: map[*ast.Ident]*ast.CallExpr{}, start: map[*ast.Ident]token.Pos{}, escaping: map[ast.Node]bool{},
		part: map[ast.Node]bool{}, orders: map[*ast.CallExpr]order{},
	}
	for obj, lit := range w.literals {
		w.names[lit] = obj
	}
	return w
}

// visit is called for every node of the function, and looks into it itself
// where the nodes within are to be seen differently.
func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		w.literal(n)
		return false
	case *ast.DeferStmt:
		w.deferStatement(n.Call)
		return false
	case *ast.RangeStmt:
		return w.rangeStatement(n)
	case *ast.GoStmt:
		w.use(w.f, n.Pos(), goStatement.about("a go statement"))
	case *ast.SelectStmt:
		w.use(w.f, n.Pos(), selecting.about("select"))
		for _, clause := range n.Body.List {
			w.markCommunication(clause.(*ast.CommClause).Comm)
		}
	case *ast.SendStmt:
		if !w.part[n] {
			w.use(w.f, n.Arrow, channels.about("a send to channel "+text(n.Chan)))
		}
	case *ast.UnaryExpr:
		if n.Op == token.ARROW && !w.part[n] && !w.isListedCall(n.X) {
			w.use(w.f, n.Pos(), channels.about("a receive from channel "+text(n.X)))
		}
	case *ast.ReturnStmt:
		w.returned(n)
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Value
			}
			w.markEscaping(e)
		}
	case *ast.AssignStmt:
		w.assigned(n)
	case *ast.ValueSpec:
		for _, v := range n.Values {
			if call, ok := ast.Unparen(v).(*ast.CallExpr); ok {
				w.orders[call] = w.orderOf(exprs(n.Names), call)
			}
		}
	case *ast.CallExpr:
		w.call(n)
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			if _, ok := w.TypesInfo.Uses[x].(*types.PkgName); ok {
				w.start[n.Sel] = x.Pos()
			}
		}
	case *ast.Ident:
		w.mention(n)
	}
	return true
}

// deferStatement reads a deferred call. Its arguments and what the function is
// taken from are evaluated at once.
func (w *walker) deferStatement(call *ast.CallExpr) {
	before := w.deferred
	w.deferred = true
	w.call(call)
	w.deferred = before
	for _, arg := range call.Args {
		if _, ok := arg.(*ast.FuncLit); ok {
			w.inDefer(arg)
		} else {
			ast.Inspect(arg, w.visit)
		}
	}
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.SelectorExpr:
		w.visit(fun)
		ast.Inspect(fun.X, w.visit)
		w.inDefer(fun.Sel)
	case *ast.CallExpr:
		ast.Inspect(fun, w.visit)
	default:
		w.inDefer(fun)
	}
}

func (w *walker) inDefer(n ast.Node) {
	before := w.deferred
	w.deferred = true
	ast.Inspect(n, w.visit)
	w.deferred = before
}

// rangeStatement reports whether what is in n remains to be visited.
func (w *walker) rangeStatement(n *ast.RangeStmt) bool {
	if _, ok := under(w.TypesInfo.TypeOf(n.X)).(*types.Chan); ok && !w.isListedCall(n.X) {
		w.use(w.f, n.Pos(), channels.about("ranging over channel "+text(n.X)))
	}
	m := mapRangedOver(w.TypesInfo, n.X)
	if m == nil {
		return true
	}
	if call, ok := ast.Unparen(n.X).(*ast.CallExpr); ok {
		w.orders[call] = ordered // the loop tells what becomes of it
	}
	if isBlank(n.Key) && isBlank(n.Value) {
		return true // every turn is the same
	}
	for _, e := range []ast.Expr{n.Key, n.Value, n.X} {
		if e != nil {
			ast.Inspect(e, w.visit)
		}
	}
	loop := &mapLoop{stmt: n, name: text(m)}
	w.f.loops = append(w.f.loops, loop)
	outer := w.loops
	w.loops = append(outer[:len(outer):len(outer)], loop)
	ast.Inspect(n.Body, w.visit)
	w.loops = outer
	return false
}

// markCommunication notes the operation of a select's case.
func (w *walker) markCommunication(comm ast.Stmt) {
	switch s := comm.(type) {
	case *ast.SendStmt:
		w.part[s] = true
	case *ast.ExprStmt:
		w.part[ast.Unparen(s.X)] = true
	case *ast.AssignStmt:
		w.part[ast.Unparen(s.Rhs[0])] = true
	}
}

// markEscaping notes that a function value goes where this function does not
// call it.
func (w *walker) markEscaping(e ast.Expr) {
	switch e := ast.Unparen(e).(type) {
	case *ast.FuncLit:
		w.escaping[e] = true
	case *ast.Ident:
		w.escaping[e] = true
	case *ast.SelectorExpr:
		w.escaping[e.Sel] = true
	}
}

func (w *walker) returned(n *ast.ReturnStmt) {
	for _, e := range n.Results {
		w.markEscaping(e)
		if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
			w.orders[call] = returned
		}
	}
}

func (w *walker) assigned(n *ast.AssignStmt) {
	for i, e := range n.Rhs {
		targets := n.Lhs
		if len(n.Lhs) == len(n.Rhs) {
			targets = n.Lhs[i : i+1]
		}
		if _, local := targets[0].(*ast.Ident); !local {
			w.markEscaping(e)
		}
		if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
			w.orders[call] = w.orderOf(targets, call)
		}
	}
}

// text returns the source of e, shortened.
func text(e ast.Expr) string {
	const limit = 40
	s := types.ExprString(e)
	if len([]rune(s)) > limit {
		s = string([]rune(s)[:limit]) + "…"
	}
	return s
}
