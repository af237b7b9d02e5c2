package durablecheck

import (
	"go/types"
	"strings"
)

// durablePath is the package path of the orchestrator API.
const durablePath = "github.com/durablefunctions-go/durablefunctions/durable"

// isOwnInternals reports whether the package with the given path implements orchestrators. Such
// packages are not checked: they implement the rules.
func isOwnInternals(path string) bool {
	return path == durablePath || strings.HasPrefix(path, durablePath+"/internal/")
}

// isOrchestrator reports whether sig is the signature of an orchestrator or of a function that only an
// orchestrator can call: its first parameter is a *durable.Context.
func isOrchestrator(sig *types.Signature) bool {
	return sig.Params().Len() > 0 && isDurableContext(sig.Params().At(0).Type())
}

// takesContext reports whether the first parameter of sig is a context.Context, as in activities and
// most functions that do I/O. It is also true for operations of entities.
func takesContext(sig *types.Signature) bool {
	return sig.Params().Len() > 0 && isNamed(sig.Params().At(0).Type(), "context", "Context") || isOperation(sig)
}

// isOperation reports whether sig is the signature of an entity operation: a method, a method
// expression or a function.
func isOperation(sig *types.Signature) bool {
	for i := range min(sig.Params().Len(), 2) {
		if p, ok := types.Unalias(sig.Params().At(i).Type()).(*types.Pointer); ok && isNamed(p.Elem(), durablePath, "EntityContext") {
			return true
		}
	}
	return false
}

// takesSignaler reports whether the first parameter of sig is a durable.Signaler. The Context of an
// orchestrator implements Signaler.
func takesSignaler(sig *types.Signature) bool {
	return sig.Params().Len() > 0 && isNamed(sig.Params().At(0).Type(), durablePath, "Signaler")
}

// isActivity reports whether a function with the signature sig can be registered as an activity:
// func(context.Context, I) (O, error).
func isActivity(sig *types.Signature) bool {
	return takesContext(sig) && sig.Params().Len() == 2 && !sig.Variadic() &&
		sig.Results().Len() == 2 && isError(sig.Results().At(1).Type())
}

// isDurableCall reports whether fn, a function of package durable, makes a decision that the history
// records, or uses a value that depends on its position. Functions that take the orchestrator's Context
// do so. Methods of Context and of tasks do so if they can fail or return a task, and methods of Context
// also if they return nothing; the other methods only read. NewUUID takes the next value of a sequence,
// and the result of Patched is recorded.
func isDurableCall(fn *types.Func) bool {
	sig := fn.Signature()
	if isOrchestrator(sig) || takesSignaler(sig) {
		return true
	}
	if sig.Recv() == nil || takesContext(sig) {
		return false
	}
	results := sig.Results()
	switch receiver(fn) {
	case "Context":
		if fn.Name() == "NewUUID" || fn.Name() == "Patched" || results.Len() == 0 {
			return true
		}
	case "Task", "Awaitable":
	default:
		return false
	}
	for v := range results.Variables() {
		if isTask(v.Type()) {
			return true
		}
	}
	return results.Len() > 0 && isError(results.At(results.Len()-1).Type())
}

// isClientCall reports whether fn, a function of package durable, is for use outside of orchestrators
// and sends requests to the task hub.
func isClientCall(fn *types.Func) bool { return takesContext(fn.Signature()) }

// receiver returns the name of fn's receiver type, empty for a function.
func receiver(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return ""
	}
	t := types.Unalias(recv.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return "interface"
}

// isInterfaceMethod reports whether fn has no body to check.
func isInterfaceMethod(fn *types.Func) bool {
	recv := fn.Signature().Recv()
	return recv != nil && types.IsInterface(recv.Type())
}

func isDurableContext(t types.Type) bool {
	p, ok := types.Unalias(t).(*types.Pointer)
	return ok && isNamed(p.Elem(), durablePath, "Context")
}

func isTask(t types.Type) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	return isNamed(t, durablePath, "Task") || isNamed(t, durablePath, "Awaitable")
}

func isNamed(t types.Type, path, name string) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == name && packagePath(n.Obj().Pkg()) == path
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// signature returns the signature of a function of type t, nil if t is not a function type.
func signature(t types.Type) *types.Signature {
	if t == nil {
		return nil
	}
	sig, _ := under(t).(*types.Signature)
	return sig
}

// under returns the underlying type of t. For a type parameter it is the common underlying type of its
// constraint, if the constraint has one.
func under(t types.Type) types.Type {
	param, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		return t.Underlying()
	}
	iface, ok := param.Constraint().Underlying().(*types.Interface)
	if !ok {
		return t.Underlying()
	}
	var core types.Type
	for e := range iface.EmbeddedTypes() {
		terms := []types.Type{e}
		if u, ok := e.(*types.Union); ok {
			terms = terms[:0]
			for term := range u.Terms() {
				terms = append(terms, term.Type())
			}
		}
		for _, term := range terms {
			if core != nil && !types.Identical(core, term.Underlying()) {
				return t.Underlying()
			}
			core = term.Underlying()
		}
	}
	if core == nil {
		return t.Underlying()
	}
	return core
}
