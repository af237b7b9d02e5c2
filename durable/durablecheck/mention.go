package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

var (
	ownPrint   = &advice{ruleLog, "prints again on each replay", "prefer ctx.Logger(), which is silent while replaying"}
	outside    = &advice{ruleClient, "talks to the task hub past the history, again on each replay", "use what takes the orchestrator's *durable.Context, such as durable.CallSubOrchestrator, or do it in an activity"}
	unrecorded = &advice{ruleActivity, "is called directly, so that it runs unrecorded and again on each replay", ""}
	withCtx    = &advice{ruleActivity, "is called with a context.Context, as work is that the history does not record, and runs again on each replay", "do it in an activity"}
	inDefer    = &advice{ruleDefer, "runs in a defer, which also runs when the instance is unloaded from memory and can then do nothing durable", "compensate in plain code after the error"}
)

// call looks at a call as a whole. Its function is seen by mention.
func (w *walker) call(n *ast.CallExpr) {
	fun, id := calledName(n)
	tv := w.TypesInfo.Types[fun]
	if tv.IsType() {
		return
	}
	if id != nil {
		w.called[id] = n
	}
	if tv.IsBuiltin() {
		w.builtin(n, id)
	}
	w.passOrder(n)
	callee := calleeOf(w.TypesInfo, n)
	w.fileOperation(n, callee)
	sig := signature(w.TypesInfo.TypeOf(n.Fun))
	if sig == nil {
		return
	}
	_, declared := callee.(*types.Func)
	switch {
	case isOrchestrator(sig) && (!declared || isInterfaceMethod(callee.(*types.Func))):
		// Nobody can tell what it does, but it got the means.
		w.durable(n.Pos(), &durableUse{Call: text(n.Fun)})
	case takesContext(sig):
		w.calledWithContext(n, callee, sig)
	}
}

// calledName returns the function of a call without type arguments, and the
// name that it ends in, nil if there is none.
func calledName(n *ast.CallExpr) (ast.Expr, *ast.Ident) {
	fun := ast.Unparen(n.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		return fun, f
	case *ast.SelectorExpr:
		return fun, f.Sel
	}
	return fun, nil
}

// calleeOf returns the function or variable that n calls, nil if it is
// neither.
func calleeOf(info *types.Info, n *ast.CallExpr) types.Object {
	_, id := calledName(n)
	if id == nil {
		return nil
	}
	return origin(info.Uses[id])
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

// calledWithContext looks at the call of something whose first parameter is a
// context.Context. The standard library is judged by its list alone: the
// methods of a logger take one too.
func (w *walker) calledWithContext(n *ast.CallExpr, callee types.Object, sig *types.Signature) {
	name := text(n.Fun)
	if callee != nil {
		fn, ok := callee.(*types.Func)
		if ok && packagePath(fn.Pkg()) == durablePath {
			return // mention tells
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

// fileOperation reports what reads or writes a file or a connection that came
// from elsewhere.
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
		if t == nil || w.isListed(arg) {
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

// mention looks at a name. What has a name is taken to be called where it is
// mentioned, but for orchestrators and activities: they are handed to the
// functions that start them.
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
	if isMapSequence(fn) {
		w.mapSequence(id, pos, fn)
		return
	}
	switch {
	case isInterfaceMethod(fn), takesContext(fn.Signature()):
	case isOrchestrator(fn.Signature()) && w.called[id] == nil:
	default:
		w.follow(pos, fn, w.orderAt(id))
	}
}

// durable notes that the function makes a durable call.
func (w *walker) durable(pos token.Pos, d *durableUse) {
	if w.f.durable == nil {
		w.f.durable = d
	}
	w.durableAt(w.f, pos, w.deferred, w.loops, d)
}

// durableAt reports a durable call, made by f or by what it calls at pos,
// where none may be.
func (c *checker) durableAt(f *function, pos token.Pos, deferred bool, loops []*mapLoop, d *durableUse) {
	if deferred {
		found := inDefer.about(d.Call)
		found.Via = d.Via
		c.use(f, pos, found)
	}
	for _, loop := range loops {
		c.durableInLoop(f, loop, d)
	}
}

// follow notes that what obj stands for may run.
func (w *walker) follow(pos token.Pos, obj types.Object, o order) {
	w.f.calls = append(w.f.calls, call{
		pos: pos, callee: obj, deferred: w.deferred, loops: w.loops, order: o, ignored: w.ignores.at(pos),
	})
}

// isListed reports whether e names something that the list reports.
func (w *walker) isListed(e ast.Expr) bool {
	var id *ast.Ident
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id = e.Sel
	default:
		return false
	}
	obj := w.TypesInfo.Uses[id]
	if obj == nil || obj.Pkg() == nil {
		return false
	}
	adv, _ := lookup(origin(obj))
	return adv != nil
}

// isListedCall reports whether e is a call that the list reports.
func (w *walker) isListedCall(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	return ok && w.isListed(call.Fun)
}

// origin returns the generic function that obj is an instance of, or obj.
func origin(obj types.Object) types.Object {
	switch o := obj.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return obj
}
