package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// Statements and operations that break replay.
var (
	goStatement = &advice{ruleGo, "runs code whose timing the history does not record", "use durable.Go"}
	selecting   = &advice{ruleSelect, "chooses by timing, which the history does not record", "use durable.AwaitAny"}
	variableIDs = &advice{rulePatch, "names a change with a value that may differ on replay", "give each change its own constant"}
	channels    = &advice{ruleChannel, "waits for other goroutines, which the history does not record", "pass values in variables, and use tasks, durable.Go or an event to wait"}
)

// A walker reads the code of one function.
type walker struct {
	*checker
	f        *function
	deferred bool                          // the code runs when f returns or is unwound, by a panic or when the instance is unloaded
	loops    []*mapLoop                    // map ranges around the code, innermost last
	literals map[types.Object]*ast.FuncLit // by the variables that stand for a literal
	names    map[*ast.FuncLit]types.Object // the inverse of literals
	stepOnly map[types.Object]bool         // the literals that only steps use
	closures map[types.Object]*function

	// Properties of nodes that follow from the surrounding nodes.
	called   map[*ast.Ident]*ast.CallExpr // calls, by the name of the function
	start    map[*ast.Ident]token.Pos     // start of a qualified name, by its last identifier
	escaping map[ast.Node]bool            // function values that are passed on and not called
	part     map[ast.Node]bool            // operations that are reported as a part of another one
	orders   orders                       // use of the order of results
}

// visit handles a node of the function. It returns false if it has visited the nodes within n itself.
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
		if n.Op == token.ARROW && !w.part[n] && !isListedCall(w.TypesInfo, n.X) {
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
				w.orders[call] = w.orders.of(w.TypesInfo, w.f, exprs(n.Names), call)
			}
		}
	case *ast.CallExpr:
		w.call(n)
		return w.callback(n)
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

// deferStatement reads a deferred call. The arguments and the expression that selects the function are
// evaluated immediately.
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

// rangeStatement reads a range statement. It returns true if the nodes within n must still be visited.
func (w *walker) rangeStatement(n *ast.RangeStmt) bool {
	if _, ok := under(w.TypesInfo.TypeOf(n.X)).(*types.Chan); ok && !isListedCall(w.TypesInfo, n.X) {
		w.use(w.f, n.Pos(), channels.about("ranging over channel "+text(n.X)))
	}
	m := mapRangedOver(w.TypesInfo, n.X)
	if m == nil {
		return true
	}
	if call, ok := ast.Unparen(n.X).(*ast.CallExpr); ok {
		w.orders[call] = ordered // the loop determines the use of the order
	}
	if isBlank(n.Key) && isBlank(n.Value) {
		return true // all iterations are equal
	}
	for _, e := range []ast.Expr{n.Key, n.Value, n.X} {
		if e != nil {
			ast.Inspect(e, w.visit)
		}
	}
	w.inLoop(newRangeLoop(w.TypesInfo, n, m), n.Body)
	return false
}

// inLoop reads n, which runs for each entry of a map.
func (w *walker) inLoop(loop *mapLoop, n ast.Node) {
	w.f.loops = append(w.f.loops, loop)
	outer := w.loops
	w.loops = append(outer[:len(outer):len(outer)], loop)
	ast.Inspect(n, w.visit)
	w.loops = outer
}

// callback reads the parts of a call of a function that visits a map. It returns true if the nodes
// within n must still be visited.
func (w *walker) callback(n *ast.CallExpr) bool {
	fn, ok := calleeOf(w.TypesInfo, n).(*types.Func)
	if !ok || !hasEffect(fn, visitsMapOrder) {
		return true
	}
	last := ast.Unparen(n.Args[len(n.Args)-1])
	lit, _ := last.(*ast.FuncLit)
	if id, ok := last.(*ast.Ident); ok {
		lit = w.literals[w.TypesInfo.Uses[id]]
	}
	for _, arg := range n.Args[:len(n.Args)-1] {
		ast.Inspect(arg, w.visit)
	}
	w.inLoop(newCallbackLoop(n, fn, lit), last)
	return false
}

// markCommunication marks the operation of a select case as a part of the select statement.
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

// markEscaping marks a function value that this function passes on without calling it.
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
			w.orders[call] = w.orders.of(w.TypesInfo, w.f, targets, call)
		}
	}
}

// literal reads a function literal as code that may run where it is written. Orchestrators are checked
// separately, activities not at all. A literal that a function only passes on runs elsewhere, unless
// the function is an orchestrator.
func (w *walker) literal(lit *ast.FuncLit) {
	sig := w.TypesInfo.TypeOf(lit).(*types.Signature)
	if isOrchestrator(sig) || takesContext(sig) && !w.f.root().inStep {
		return
	}
	if obj, ok := w.names[lit]; ok {
		w.closure(obj, lit)
		return
	}
	if w.escaping[lit] && !w.f.root().orchestrator {
		return
	}
	ast.Inspect(lit.Body, w.visit)
}

// closure reads a literal that is the only value of a local variable. It runs where the variable is
// mentioned.
func (w *walker) closure(obj types.Object, lit *ast.FuncLit) {
	inner := w.closureOf(obj, lit)
	f, deferred, loops := w.f, w.deferred, w.loops
	w.f, w.deferred, w.loops = inner, false, nil
	ast.Inspect(lit.Body, w.visit)
	w.f, w.deferred, w.loops = f, deferred, loops
}

// closureOf returns the function for the variable obj. The variable may be mentioned before its
// literal is read.
func (w *walker) closureOf(obj types.Object, lit *ast.FuncLit) *function {
	f, ok := w.closures[obj]
	if !ok {
		f = w.add(obj, obj.Name(), lit)
		if w.stepOnly[obj] && w.f.root().owner == nil {
			f.inStep, f.owner = true, w.f
		} else {
			f.outer = w.f.root()
		}
		w.closures[obj] = f
	}
	return f
}

// call reads a call as a whole. mention handles the called function.
func (w *walker) call(n *ast.CallExpr) {
	fun, id := calledName(n)
	tv := w.TypesInfo.Types[fun]
	if tv.IsType() {
		w.orders.convert(n)
		return
	}
	if id != nil {
		w.called[id] = n
	}
	if tv.IsBuiltin() {
		w.builtin(n, id)
	}
	w.orders.pass(w.TypesInfo, n)
	callee := calleeOf(w.TypesInfo, n)
	w.fileOperation(n, callee)
	if id := variableID(w.TypesInfo, n, callee); id != nil {
		w.use(w.f, id.Pos(), variableIDs.about("Patched of "+text(id)))
	}
	markContext(w, n, callee)
	checkStep(w, n, callee)
	sig := signature(w.TypesInfo.TypeOf(n.Fun))
	if sig == nil {
		return
	}
	_, declared := callee.(*types.Func)
	switch {
	case isOrchestrator(sig) && (!declared || isInterfaceMethod(callee.(*types.Func))):
		// The called function is unknown, but it gets the Context.
		w.durable(n.Pos(), &durableUse{Call: text(n.Fun)})
	case takesContext(sig):
		w.calledWithContext(n, callee, sig)
	}
}

func (w *walker) builtin(n *ast.CallExpr, id *ast.Ident) {
	switch id.Name {
	case "print", "println":
		w.use(w.f, n.Pos(), ownPrint.about("the builtin "+id.Name))
	case "close":
		w.use(w.f, n.Pos(), channels.about("closing channel "+text(n.Args[0])))
	case "make":
		if _, ok := under(w.TypesInfo.TypeOf(n.Args[0])).(*types.Chan); ok {
			w.use(w.f, n.Pos(), channels.about("making a channel"))
		}
	}
}

// calledWithContext reads a call of a function whose first parameter is a context.Context. For the
// standard library only the list of forbidden names applies, because methods of loggers have such a
// parameter too.
func (w *walker) calledWithContext(n *ast.CallExpr, callee types.Object, sig *types.Signature) {
	name := text(n.Fun)
	if callee != nil {
		fn, ok := callee.(*types.Func)
		if ok && packagePath(fn.Pkg()) == durablePath {
			return // mention handles it
		}
		if path := packagePath(callee.Pkg()); ok && path != w.path && isStandard(path, nil) {
			return
		}
	} else if _, ok := ast.Unparen(n.Fun).(*ast.FuncLit); ok {
		name = "a function literal with a context.Context"
	}
	adv := *withCtx
	if isActivity(sig) {
		adv = *unrecorded
		adv.instead = "use durable.CallActivity(ctx, " + name + ", …)"
	}
	w.use(w.f, n.Pos(), adv.about(name))
}

// fileOperation reports reads and writes of a file or connection that was opened elsewhere.
func (w *walker) fileOperation(n *ast.CallExpr, callee types.Object) {
	if callee == nil {
		return
	}
	switch packagePath(callee.Pkg()) {
	case "io", "io/ioutil", "bufio":
	default:
		return
	}
	for _, arg := range n.Args {
		t := w.TypesInfo.TypeOf(arg)
		if t == nil || isListed(w.TypesInfo, arg) {
			continue
		}
		if p, ok := types.Unalias(t).(*types.Pointer); ok {
			t = p.Elem()
		}
		if isNamed(t, "os", "File") || isNamed(t, "net", "Conn") || isNamed(t, "net", "TCPConn") || isNamed(t, "net/http", "ResponseWriter") {
			w.use(w.f, n.Pos(), files.about(qualified(callee)+" on "+text(arg)))
			return
		}
	}
}

// mention handles a name. A named function counts as called where it is mentioned. Orchestrators and
// activities are the exception: they are arguments of the functions that start them.
func (w *walker) mention(id *ast.Ident) {
	pos, ok := w.start[id]
	if !ok {
		pos = id.Pos()
	}
	switch obj := origin(w.TypesInfo.Uses[id]).(type) {
	case *types.Func:
		w.function(id, pos, obj)
	case *types.Var:
		if lit, ok := w.literals[obj]; ok {
			if !w.escaping[id] || w.f.root().orchestrator {
				w.closureOf(obj, lit)
				w.follow(pos, obj, kept)
			}
		} else if isPackageLevel(obj) {
			w.variable(id, pos, obj)
		} else if owner := w.f.root().owner; owner != nil && isDurableContext(obj.Type()) && !w.part[id] {
			w.use(owner, pos, contextUsed.about(id.Name))
		}
	}
}

func (w *walker) function(id *ast.Ident, pos token.Pos, fn *types.Func) {
	if fn.Pkg() == nil {
		return
	}
	if packagePath(fn.Pkg()) == durablePath {
		switch {
		case isClientCall(fn):
			w.use(w.f, pos, outside.about(qualified(fn)))
		case isDurableCall(fn):
			w.durable(pos, &durableUse{Call: qualified(fn)})
		}
		return
	}
	if w.escaping[id] && w.called[id] == nil && !w.f.root().orchestrator {
		return
	}
	if adv, listed := lookup(fn); listed {
		if adv != nil {
			w.use(w.f, pos, adv.about(qualified(fn)))
		}
		return
	}
	if hasEffect(fn, yieldsMapOrder) {
		w.mapSequence(id, pos, fn)
		return
	}
	switch {
	case isInterfaceMethod(fn), takesContext(fn.Signature()) && !w.f.root().inStep:
	case isOrchestrator(fn.Signature()) && w.called[id] == nil:
	default:
		w.follow(pos, fn, w.orderAt(id))
	}
}

// durable records that the function makes a durable call.
func (w *walker) durable(pos token.Pos, d *durableUse) {
	if w.f.durable == nil {
		w.f.durable = d
	}
	if owner := w.f.root().owner; owner != nil {
		w.use(owner, pos, inStep(d))
	}
	w.durableAt(w.f, pos, w.deferred, w.loops, d)
}

// follow records that the function behind obj may run.
func (w *walker) follow(pos token.Pos, obj types.Object, o order) {
	w.f.calls = append(w.f.calls, call{
		pos: pos, callee: obj, deferred: w.deferred, loops: w.loops, order: o, ignored: w.ignores.at(pos),
	})
}

// mapSequence handles a mention of a function whose result is in map order.
func (w *walker) mapSequence(id *ast.Ident, pos token.Pos, fn *types.Func) {
	switch o := w.orderAt(id); {
	case o == ordered:
	case o == returned && !w.f.root().orchestrator:
		w.f.root().unordered = true
	default:
		w.use(w.f, pos, sequences.about(qualified(fn)))
	}
}

// orderAt returns the use of the result of the function named id.
func (w *walker) orderAt(id *ast.Ident) order {
	call, ok := w.called[id]
	if !ok {
		return kept // the result of a later call is unknown
	}
	return w.orders[call]
}

// variable handles a mention of a package-level variable.
func (w *walker) variable(id *ast.Ident, pos token.Pos, v *types.Var) {
	if packagePath(v.Pkg()) == durablePath {
		return
	}
	if adv, listed := lookup(v); listed {
		if adv != nil {
			w.use(w.f, pos, adv.about(qualified(v)))
		}
		return
	}
	name := v.Name()
	if v.Pkg() != w.Pkg {
		name = qualified(v)
	}
	switch s := w.summaryOf(v); {
	case w.mutations.written[id]:
		w.use(w.f, pos, writing.about("changing package variable "+name))
	case w.mutations.variables[v] || s != nil && s.Mutable:
		w.use(w.f, pos, reading.about("package variable "+name))
	case !w.escaping[id] || w.called[id] != nil || w.f.root().orchestrator:
		if sig := signature(v.Type()); sig == nil || !takesContext(sig) && !isOrchestrator(sig) {
			w.follow(pos, v, kept)
		}
	}
}
