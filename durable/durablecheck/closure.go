package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// literal reads a function literal where it stands, as something that the
// function may call there. Orchestrators among them are looked at on their
// own, activities not at all. What a function that is no orchestrator only
// hands out runs elsewhere.
func (w *walker) literal(lit *ast.FuncLit) {
	sig := w.TypesInfo.TypeOf(lit).(*types.Signature)
	if isOrchestrator(sig) || takesContext(sig) {
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

// closure reads a literal that is the only value of a local variable. It runs
// where the variable is mentioned.
func (w *walker) closure(obj types.Object, lit *ast.FuncLit) {
	inner := w.closureOf(obj, lit)
	f, deferred, loops := w.f, w.deferred, w.loops
	w.f, w.deferred, w.loops = inner, false, nil
	ast.Inspect(lit.Body, w.visit)
	w.f, w.deferred, w.loops = f, deferred, loops
}

// closureOf returns the function that the variable obj stands for. It may be
// mentioned before its literal has been read.
func (w *walker) closureOf(obj types.Object, lit *ast.FuncLit) *function {
	f, ok := w.closures[obj]
	if !ok {
		f = w.add(obj, obj.Name(), lit)
		f.outer = w.f.root()
		w.closures[obj] = f
	}
	return f
}

// namedLiterals returns the local variables of n that never hold anything but
// one function literal.
func namedLiterals(info *types.Info, n ast.Node) map[types.Object]*ast.FuncLit {
	values := map[types.Object][]ast.Expr{}
	declared := map[types.Object]bool{}
	note := func(e, value ast.Expr) {
		id, ok := e.(*ast.Ident)
		if !ok {
			return
		}
		if obj := info.Defs[id]; obj != nil {
			declared[obj] = true
		}
		if obj := info.ObjectOf(id); obj != nil && value != noValue {
			values[obj] = append(values[obj], value)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				var value ast.Expr
				if len(n.Lhs) == len(n.Rhs) {
					value = n.Rhs[i]
				}
				note(lhs, value)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				value := noValue
				if i < len(n.Values) {
					value = n.Values[i]
				}
				note(name, value)
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(ast.Unparen(n.X), nil)
			}
		}
		return true
	})
	named := map[types.Object]*ast.FuncLit{}
	for obj, vs := range values {
		if len(vs) != 1 || vs[0] == nil || !declared[obj] {
			continue
		}
		if lit, ok := ast.Unparen(vs[0]).(*ast.FuncLit); ok {
			named[obj] = lit
		}
	}
	return named
}

// noValue stands for that of a variable that is only declared.
var noValue ast.Expr = &ast.BadExpr{}
