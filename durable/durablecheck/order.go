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

// isMapSequence reports whether fn returns an iterator over a map.
func isMapSequence(fn *types.Func) bool {
	return packagePath(fn.Pkg()) == "maps" && (fn.Name() == "Keys" || fn.Name() == "Values" || fn.Name() == "All")
}

// mapRangedOver returns the map that a range over x iterates, nil if x is neither a map nor an
// iterator over one.
func mapRangedOver(info *types.Info, x ast.Expr) ast.Expr {
	if _, ok := under(info.TypeOf(x)).(*types.Map); ok {
		return x
	}
	if call, ok := ast.Unparen(x).(*ast.CallExpr); ok {
		if fn, ok := calleeOf(info, call).(*types.Func); ok && isMapSequence(fn) {
			return call.Args[0]
		}
	}
	return nil
}

// keepsOrder reports whether the result of fn has the order of its argument.
func keepsOrder(fn types.Object) bool {
	if fn == nil || packagePath(fn.Pkg()) != "slices" {
		return false
	}
	switch fn.Name() {
	case "Collect", "AppendSeq", "Clone", "Values", "All", "Concat":
		return true
	}
	return false
}

// losesOrder reports whether the result of fn does not depend on the order of its argument.
func losesOrder(fn types.Object) bool {
	if fn == nil {
		return false
	}
	switch packagePath(fn.Pkg()) {
	case "":
		return fn.Name() == "len"
	case "slices":
		switch fn.Name() {
		case "Contains", "ContainsFunc", "Max", "Min":
			return true
		}
	case "maps":
		return fn.Name() == "Collect" || fn.Name() == "Insert"
	}
	return sorts(fn)
}

// sorts reports whether fn sorts its argument: the functions of packages sort and slices, and any
// function whose name starts with Sort.
func sorts(fn types.Object) bool {
	switch packagePath(fn.Pkg()) {
	case "sort":
		switch fn.Name() {
		case "Strings", "Ints", "Float64s", "Slice", "SliceStable", "Sort", "Stable":
			return true
		}
		return false
	case "slices":
		return strings.HasPrefix(fn.Name(), "Sort") // and Sorted
	}
	_, isFunc := fn.(*types.Func)
	return isFunc && strings.HasPrefix(strings.ToLower(fn.Name()), "sort")
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
