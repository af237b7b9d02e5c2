package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

var (
	insideStep  = &advice{ruleStep, "runs inside a step, where durable calls are impossible", "call it in the orchestrator, before or after the step"}
	nestedStep  = &advice{ruleStep, "runs inside another step, where durable calls are impossible", "start both steps in the orchestrator"}
	contextUsed = &advice{ruleStep, "is the Context of the orchestrator, which a step must not use", "use the context.Context of the step, or read the value before the step"}
	lost        = &advice{ruleStep, "is changed inside a step, which a replay does not run, so the change is lost", "return the value from the step"}
	raced       = &advice{ruleStep, "is changed while a step that uses it may run, which is a data race", "change it after the Await of the step, or give the step a copy"}
)

// isStepStart reports whether fn starts a step: durable.Step and durable.Poll.
func isStepStart(fn types.Object) bool {
	f, ok := fn.(*types.Func)
	return ok && packagePath(f.Pkg()) == durablePath && f.Signature().Recv() == nil && (f.Name() == "Step" || f.Name() == "Poll")
}

// stepFunction returns the argument of n, a call of fn, that is the function of the step, nil if fn starts
// no step.
func stepFunction(fn types.Object, n *ast.CallExpr) ast.Expr {
	if !isStepStart(fn) {
		return nil
	}
	params := fn.(*types.Func).Signature().Params()
	for i := range min(params.Len(), len(n.Args)) {
		if sig := signature(params.At(i).Type()); sig != nil && takesContext(sig) {
			return withoutTypeArguments(n.Args[i])
		}
	}
	return nil
}

// inStep returns the finding that d runs inside a step.
func inStep(d *durableUse) finding {
	adv := insideStep
	if d.Call == "durable.Step" || d.Call == "durable.Poll" {
		adv = nestedStep
	}
	found := adv.about(d.Call)
	found.Via = d.Via
	return found
}

// A stepCheck checks the function that a step runs.
type stepCheck struct {
	*walker
	call *ast.CallExpr // of durable.Step
}

// checkStep checks the function of the step that n starts. It does nothing for other calls.
func checkStep(w *walker, n *ast.CallExpr, callee types.Object) {
	f := stepFunction(callee, n)
	if f == nil || w.f.root().inStep {
		return
	}
	s := &stepCheck{w, n}
	switch e := f.(type) {
	case *ast.FuncLit:
		s.literal(e)
	case *ast.Ident:
		s.named(e, e)
	case *ast.SelectorExpr:
		s.named(e, e.Sel)
	}
}

// literal checks a function literal.
func (s *stepCheck) literal(lit *ast.FuncLit) {
	inner := s.add(nil, "step", lit)
	inner.inStep, inner.owner = true, s.f
	f, deferred, loops := s.f, s.deferred, s.loops
	s.f, s.deferred, s.loops = inner, false, nil
	ast.Inspect(lit.Body, s.visit)
	s.f, s.deferred, s.loops = f, deferred, loops
	newCaptures(s.walker, s.call, lit).check()
}

// named checks a function that has a name: a local variable, a function or a method.
func (s *stepCheck) named(e ast.Expr, id *ast.Ident) {
	obj := origin(s.TypesInfo.Uses[id])
	if lit, ok := s.literals[obj]; ok {
		s.literal(lit)
		return
	}
	fn, ok := obj.(*types.Func)
	if !ok {
		return
	}
	s.f.stepCalls = append(s.f.stepCalls, call{pos: e.Pos(), callee: fn})
	if sel, ok := e.(*ast.SelectorExpr); ok && s.mutations.mutates(fn) {
		if v := rootVariable(s.TypesInfo, sel.X); v != nil && !isPackageLevel(v.(*types.Var)) && !isReceiver(s.TypesInfo, s.f.root().body, v) {
			s.use(s.f, e.Pos(), lost.about(text(sel.X)))
		}
	}
}

// markContext marks the Context in a durable call. The call is reported, and its Context is not.
func markContext(w *walker, n *ast.CallExpr, callee types.Object) {
	fn, ok := callee.(*types.Func)
	if !ok || packagePath(fn.Pkg()) != durablePath || !isDurableCall(fn) {
		return
	}
	mark := func(e ast.Expr) {
		switch e := ast.Unparen(e).(type) {
		case *ast.Ident:
			w.part[e] = true
		case *ast.SelectorExpr:
			w.part[e.Sel] = true
		}
	}
	for _, arg := range n.Args {
		mark(arg)
	}
	if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
		mark(sel.X)
	}
}

// isReceiver reports whether v is the receiver of the method f.
func isReceiver(info *types.Info, f ast.Node, v types.Object) bool {
	d, ok := f.(*ast.FuncDecl)
	return ok && d.Recv != nil && len(d.Recv.List[0].Names) > 0 && info.Defs[d.Recv.List[0].Names[0]] == v
}

// stepLiterals returns the local variables in n that stand for a literal and that only steps use.
func stepLiterals(info *types.Info, n ast.Node, literals map[types.Object]*ast.FuncLit) map[types.Object]bool {
	type span struct{ from, to token.Pos }
	var steps []span
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := stepFunction(calleeOf(info, call), call).(type) {
		case *ast.FuncLit:
			steps = append(steps, span{f.Pos(), f.End()})
		case *ast.Ident:
			if lit := literals[info.Uses[f]]; lit != nil {
				steps = append(steps, span{lit.Pos(), lit.End()})
			}
		}
		return true
	})
	inside, outside := map[types.Object]bool{}, map[types.Object]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || literals[info.Uses[id]] == nil {
			return true
		}
		obj := info.Uses[id]
		within := false
		for _, s := range steps {
			within = within || s.from <= id.Pos() && id.Pos() < s.to
		}
		inside[obj], outside[obj] = inside[obj] || within, outside[obj] || !within
		return true
	})
	for obj := range outside {
		if outside[obj] {
			delete(inside, obj)
		}
	}
	return inside
}
