package durablecheck

import (
	"go/ast"
	"go/types"
)

// A mapLoop is a range over a map, or a call of a function that visits the entries of a map.
type mapLoop struct {
	node    ast.Node // the range statement or the call
	scope   ast.Node // contains the declarations of the iteration: the range statement or the literal
	subject string   // description of node

	key, value ast.Expr // nil if they have no name
	body       *ast.BlockStmt
	callback   bool // body is the body of a function literal
	stops      bool // the callback may end the iteration early
	values     bool // key is a value of the map, which may repeat
	reported   bool // it is reported already or need not be
}

// newRangeLoop returns the loop of a range statement over a map.
func newRangeLoop(info *types.Info, n *ast.RangeStmt, m ast.Expr) *mapLoop {
	return &mapLoop{
		node: n, scope: n, subject: "ranging over " + text(m),
		key: n.Key, value: n.Value, body: n.Body, values: isSequenceOfValues(info, n.X),
	}
}

// newCallbackLoop returns the loop of a call of fn, which calls its last argument for the entries of
// its first one. lit is the last argument, nil if that is another expression.
func newCallbackLoop(n *ast.CallExpr, fn *types.Func, lit *ast.FuncLit) *mapLoop {
	loop := &mapLoop{
		node: n, scope: n, subject: qualified(fn) + " over " + text(n.Args[0]),
		callback: true, stops: fn.Signature().Results().Len() > 0,
	}
	if lit == nil {
		return loop
	}
	loop.scope, loop.body = lit, lit.Body
	var names []ast.Expr
	for _, field := range lit.Type.Params.List {
		names = append(names, exprs(field.Names)...)
	}
	if len(names) > 1 {
		loop.value = names[1]
	}
	if len(names) > 0 && fn.Name() == "DeleteFunc" {
		loop.key = names[0] // the parameters of EqualFunc are values
	} else if len(names) > 0 {
		loop.key, loop.values = names[0], true
	}
	return loop
}

// isSequenceOfValues reports whether x is maps.Values(m), whose elements may repeat.
func isSequenceOfValues(info *types.Info, x ast.Expr) bool {
	call, ok := ast.Unparen(x).(*ast.CallExpr)
	if !ok {
		return false
	}
	fn := calleeOf(info, call)
	return fn != nil && fn.Name() == "Values"
}
