package durablecheck

import (
	"go/ast"
	"go/types"
)

var (
	ownPrint   = &advice{ruleLog, "prints again on each replay", "prefer ctx.Logger(), which is silent while replaying"}
	outside    = &advice{ruleClient, "talks to the task hub directly, which the history does not record and each replay repeats", "use a function that takes the orchestrator's *durable.Context, such as durable.CallSubOrchestrator, or do it in an activity"}
	unrecorded = &advice{ruleActivity, "is called directly, which the history does not record and each replay repeats", ""}
	withCtx    = &advice{ruleActivity, "is called with a context.Context, so it is probably work that the history does not record and each replay repeats", "do it in an activity"}
	inDefer    = &advice{ruleDefer, "runs in a defer, which also runs when the instance is unloaded from memory, where durable calls are impossible", "compensate in plain code after the error"}
)

// calledName returns the function of a call without type arguments, and the last identifier of its
// name, nil if it has no name.
func calledName(n *ast.CallExpr) (ast.Expr, *ast.Ident) {
	fun := withoutTypeArguments(n.Fun)
	switch f := fun.(type) {
	case *ast.Ident:
		return fun, f
	case *ast.SelectorExpr:
		return fun, f.Sel
	}
	return fun, nil
}

// calleeOf returns the function or variable that n calls, nil for any other expression.
func calleeOf(info *types.Info, n *ast.CallExpr) types.Object {
	_, id := calledName(n)
	if id == nil {
		return nil
	}
	return origin(info.Uses[id])
}

// withoutTypeArguments returns e without parentheses and type arguments.
func withoutTypeArguments(e ast.Expr) ast.Expr {
	e = ast.Unparen(e)
	switch x := e.(type) {
	case *ast.IndexExpr:
		return x.X
	case *ast.IndexListExpr:
		return x.X
	}
	return e
}

// origin returns the generic function or variable of an instance, or obj itself.
func origin(obj types.Object) types.Object {
	switch o := obj.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return obj
}

// variableID returns the ID in a call of Context.Patched. For constants and other calls it returns nil.
func variableID(info *types.Info, n *ast.CallExpr, callee types.Object) ast.Expr {
	fn, ok := callee.(*types.Func)
	if !ok || packagePath(fn.Pkg()) != durablePath || nameOf(fn) != "Context.Patched" || len(n.Args) != 1 {
		return nil
	}
	if info.Types[n.Args[0]].Value != nil {
		return nil
	}
	return n.Args[0]
}

// text returns the source text of e, shortened.
func text(e ast.Expr) string {
	const limit = 40
	s := types.ExprString(e)
	if len([]rune(s)) > limit {
		s = string([]rune(s)[:limit]) + "…"
	}
	return s
}

// nameOf returns Func or Type.Method.
func nameOf(fn *types.Func) string {
	if r := receiver(fn); r != "" {
		return r + "." + fn.Name()
	}
	return fn.Name()
}

// qualified returns the name of obj with its package name.
func qualified(obj types.Object) string {
	name := obj.Name()
	if fn, ok := obj.(*types.Func); ok {
		name = nameOf(fn)
	}
	if obj.Pkg() == nil {
		return name
	}
	return obj.Pkg().Name() + "." + name
}
