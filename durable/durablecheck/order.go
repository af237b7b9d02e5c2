package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// An order says what becomes of the order of a call's result.
type order int

const (
	kept     order = iota // it can be seen
	returned              // it is up to the callers of the function
	ordered               // it is lost: the result is sorted, counted, searched
)

var (
	mapOrder     = &advice{ruleMapOrder, "is in the order of a map, which differs on replay", "sort it"}
	sequences    = &advice{ruleMapOrder, "yields in the order of a map, which differs on replay", "wrap it in slices.Sorted"}
	durableOrder = &advice{ruleMapOrder, "", "range over sorted keys, as of slices.Sorted(maps.Keys(m))"}
)

// isMapSequence reports whether fn yields what is in a map.
func isMapSequence(fn *types.Func) bool {
	return packagePath(fn.Pkg()) == "maps" && (fn.Name() == "Keys" || fn.Name() == "Values" || fn.Name() == "All")
}

// mapRangedOver returns the map whose order a range over x has, nil if there
// is none.
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

// mapSequence looks at a mention of maps.Keys and its like.
func (w *walker) mapSequence(id *ast.Ident, pos token.Pos, fn *types.Func) {
	switch o := w.orderAt(id); {
	case o == ordered:
	case o == returned && !w.f.root().orchestrator:
		w.f.root().unordered = true
	default:
		w.use(w.f, pos, sequences.about(qualified(fn)))
	}
}

// orderAt returns what becomes of the result of the function named id.
func (w *walker) orderAt(id *ast.Ident) order {
	call, ok := w.called[id]
	if !ok {
		return ordered // it is not called here
	}
	return w.orders[call]
}

// passOrder decides for the calls among n's arguments what becomes of their
// results' order.
func (w *walker) passOrder(n *ast.CallExpr) {
	o := kept
	switch fn := calleeOf(w.TypesInfo, n); {
	case losesOrder(fn):
		o = ordered
	case keepsOrder(fn):
		o = w.orders[n]
	}
	for _, arg := range n.Args {
		if call, ok := ast.Unparen(arg).(*ast.CallExpr); ok {
			w.orders[call] = o
		}
	}
}

// keepsOrder reports whether the result of fn is in the order of its argument.
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

// losesOrder reports whether the result of fn is the same for each order of
// its argument.
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

// sorts reports whether fn sorts what it is given: those of packages sort and
// slices, and whatever else is called Sort-something.
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

// orderOf returns what becomes of the order of a call's result that is
// assigned to targets.
func (w *walker) orderOf(targets []ast.Expr, call *ast.CallExpr) order {
	best := kept
	for _, target := range targets {
		v := rootVariable(w.TypesInfo, target)
		if v == nil {
			continue
		}
		if w.sortedAfter(w.f, v, call.End()) {
			return ordered
		}
		if w.isReturned(w.f, v) {
			best = returned
		}
	}
	return best
}

// sortedAfter reports whether f sorts v, or the parts of v one after the
// other, behind pos.
func (c *checker) sortedAfter(f *function, v types.Object, pos token.Pos) bool {
	of := map[types.Object]bool{v: true}
	found := false
	ast.Inspect(f.root().body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if mentionsAny(c.TypesInfo, n.X, of) {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if id, ok := e.(*ast.Ident); ok {
						if obj := c.TypesInfo.ObjectOf(id); obj != nil {
							of[obj] = true
						}
					}
				}
			}
		case *ast.CallExpr:
			if n.Pos() < pos {
				return true
			}
			fn := calleeOf(c.TypesInfo, n)
			if fn == nil || !sorts(fn) {
				return true
			}
			if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && mentionsAny(c.TypesInfo, sel.X, of) {
				found = true
			}
			for _, arg := range n.Args {
				found = found || mentionsAny(c.TypesInfo, arg, of)
			}
		}
		return !found
	})
	return found
}

// isReturned reports whether f returns v.
func (c *checker) isReturned(f *function, v types.Object) bool {
	var t *ast.FuncType
	found := false
	ast.Inspect(f.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			t = n.Type
		case *ast.FuncLit:
			if n != f.body {
				return false
			}
			t = n.Type
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				id, ok := ast.Unparen(e).(*ast.Ident)
				found = found || ok && c.TypesInfo.Uses[id] == v
			}
		}
		return true
	})
	if t == nil || t.Results == nil {
		return found
	}
	for _, field := range t.Results.List {
		for _, name := range field.Names {
			found = found || c.TypesInfo.Defs[name] == v
		}
	}
	return found
}

// durableInLoop reports a durable call within a range over a map.
func (c *checker) durableInLoop(f *function, loop *mapLoop, d *durableUse) {
	if loop.reported {
		return
	}
	loop.reported = true
	adv := *durableOrder
	adv.because = "makes durable calls (" + d.text(c.path) + ") in another order on each replay"
	c.use(f, loop.stmt.Pos(), adv.about("ranging over "+loop.name))
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

// rootVariable returns the variable that e is, or is a part of; nil if it is
// something else, such as a part of what a function returned.
func rootVariable(info *types.Info, e ast.Expr) types.Object {
	if id := root(info, e); id != nil {
		if v, ok := info.ObjectOf(id).(*types.Var); ok {
			return v
		}
	}
	return nil
}

// root returns the name of the variable that e is, or is a part of.
func root(info *types.Info, e ast.Expr) *ast.Ident {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			if v, ok := info.Uses[x.Sel].(*types.Var); ok && !v.IsField() {
				return x.Sel // of another package
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
