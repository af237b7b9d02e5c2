package durablecheck

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// An order is the use of the order of a call's result.
type order int

const (
	kept     order = iota // the order may have an effect
	returned              // the result is returned; the callers decide
	ordered               // the order has no effect: the result is sorted, counted or searched
)

var (
	mapOrder     = &advice{ruleMapOrder, "is in the order of a map, which differs on replay", "sort it"}
	sequences    = &advice{ruleMapOrder, "yields in the order of a map, which differs on replay", "wrap it in slices.Sorted"}
	durableOrder = &advice{ruleMapOrder, "", "range over sorted keys, such as slices.Sorted(maps.Keys(m))"}
)

// mapRangedOver returns the map that a range over x iterates, nil if x is neither a map nor an
// iterator over one.
func mapRangedOver(info *types.Info, x ast.Expr) ast.Expr {
	if _, ok := under(info.TypeOf(x)).(*types.Map); ok {
		return x
	}
	if call, ok := ast.Unparen(x).(*ast.CallExpr); ok {
		if fn, ok := calleeOf(info, call).(*types.Func); ok && packagePath(fn.Pkg()) == "maps" && hasEffect(fn, yieldsMapOrder) {
			return call.Args[0]
		}
	}
	return nil
}

// An orders map contains the use of the order of the results of calls.
type orders map[*ast.CallExpr]order

// pass determines, for the calls among n's arguments, the use of the order of their results.
func (o orders) pass(info *types.Info, n *ast.CallExpr) {
	use, fn := kept, calleeOf(info, n)
	switch effect, listed := effectOf(fn); {
	case listed && effect == dropsOrder, sorts(fn):
		use = ordered
	case listed && effect == carriesOrder:
		use = o[n]
	}
	for _, arg := range n.Args {
		if call, ok := ast.Unparen(arg).(*ast.CallExpr); ok {
			o[call] = use
		}
	}
}

// convert gives the call in the conversion n the use of the converted value.
func (o orders) convert(n *ast.CallExpr) {
	if call, ok := ast.Unparen(n.Args[0]).(*ast.CallExpr); ok {
		o[call] = o[n]
	}
}

// of returns the use of the order of a call's results that f assigns to targets.
func (o orders) of(info *types.Info, f *function, targets []ast.Expr, call *ast.CallExpr) order {
	best, found := ordered, false
	for _, target := range targets {
		v := rootVariable(info, target)
		if v == nil || isBlank(target) || !hasOrder(v.Type()) {
			continue
		}
		found = true
		switch {
		case f.settles(info, v, call.End()):
		case f.returns(info, v):
			best = min(best, returned)
		default:
			best = kept
		}
	}
	if !found {
		return kept
	}
	return best
}

// hasOrder reports whether a value of type t can have an order. Errors and single values have none.
func hasOrder(t types.Type) bool {
	_, basic := under(t).(*types.Basic)
	return !basic && !isError(t)
}

// sorts reports whether fn sorts its argument: functions of packages sort and slices, and any other
// function whose name starts with Sort.
func sorts(fn types.Object) bool {
	f, isFunc := fn.(*types.Func)
	if !isFunc {
		return false
	}
	switch packagePath(f.Pkg()) {
	case "sort", "slices":
		return hasEffect(fn, sortsInPlace)
	}
	return strings.HasPrefix(strings.ToLower(f.Name()), "sort")
}

// sortsAny reports whether a call sorts one of objs, as an argument or as the receiver.
func sortsAny(info *types.Info, n *ast.CallExpr, objs map[types.Object]bool) bool {
	if fn := calleeOf(info, n); fn == nil || !sorts(fn) {
		return false
	}
	if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && mentionsAny(info, sel.X, objs) {
		return true
	}
	return slices.ContainsFunc(n.Args, func(arg ast.Expr) bool { return mentionsAny(info, arg, objs) })
}

// mentionsAny reports whether e mentions one of objs.
func mentionsAny(info *types.Info, e ast.Node, objs map[types.Object]bool) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && objs[info.ObjectOf(id)] {
			found = true
		}
		return !found
	})
	return found
}

// rootVariable returns the variable that e is, or is a part of. It returns nil for other
// expressions, such as a part of a function's result.
func rootVariable(info *types.Info, e ast.Expr) types.Object {
	if id := root(info, e); id != nil {
		if v, ok := info.ObjectOf(id).(*types.Var); ok {
			return v
		}
	}
	return nil
}

// root returns the identifier of rootVariable.
func root(info *types.Info, e ast.Expr) *ast.Ident {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			if v, ok := info.Uses[x.Sel].(*types.Var); ok && !v.IsField() {
				return x.Sel // a variable of another package
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func isBlank(e ast.Expr) bool {
	if e == nil {
		return true
	}
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

func exprs(names []*ast.Ident) []ast.Expr {
	es := make([]ast.Expr, len(names))
	for i, n := range names {
		es[i] = n
	}
	return es
}
