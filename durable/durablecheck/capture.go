package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A captures value contains the variables that the function of a step shares with its orchestrator.
type captures struct {
	*walker
	call   *ast.CallExpr         // starts the step
	bodies []*ast.FuncLit        // the function of the step and the local functions that it mentions
	used   map[*types.Var]bool   // captured variables
	outer  []ast.Node            // nodes around call, outermost first
	tasks  map[types.Object]bool // variables with the task of the step
}

func newCaptures(w *walker, call *ast.CallExpr, lit *ast.FuncLit) *captures {
	c := &captures{walker: w, call: call, used: map[*types.Var]bool{}, tasks: map[types.Object]bool{}}
	c.include(lit)
	for _, body := range c.bodies {
		ast.Inspect(body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if v, ok := c.TypesInfo.Uses[id].(*types.Var); ok && c.isCaptured(v) {
					c.used[v] = true
				}
			}
			return true
		})
	}
	return c
}

// include adds lit and the local functions that it mentions.
func (c *captures) include(lit *ast.FuncLit) {
	if slices.Contains(c.bodies, lit) {
		return
	}
	c.bodies = append(c.bodies, lit)
	ast.Inspect(lit, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if inner := c.literals[c.TypesInfo.Uses[id]]; inner != nil {
				c.include(inner)
			}
		}
		return true
	})
}

func (c *captures) isCaptured(v *types.Var) bool {
	return !v.IsField() && !isPackageLevel(v) && !c.isInside(v.Pos())
}

// isInside reports whether pos is in the code of the step.
func (c *captures) isInside(pos token.Pos) bool {
	return slices.ContainsFunc(c.bodies, func(lit *ast.FuncLit) bool { return lit.Pos() <= pos && pos < lit.End() })
}

func (c *captures) check() {
	for _, body := range c.bodies {
		c.changesIn(body.Body, func(e ast.Expr, v *types.Var) {
			if c.isCaptured(v) {
				c.use(c.f, e.Pos(), lost.about(text(e)))
			}
		})
	}
	if len(c.used) == 0 || !c.locate() {
		return
	}
	end := c.awaited()
	c.changesIn(c.f.root().body, func(e ast.Expr, v *types.Var) {
		if c.used[v] && !c.isInside(e.Pos()) && c.from(v, end) <= e.Pos() && e.Pos() < end {
			c.use(c.f, e.Pos(), raced.about(text(e)))
		}
	})
}

// changesIn calls found for the changes of variables in n: assignments, also of a part or through a
// pointer, and calls that write to a variable.
func (c *captures) changesIn(n ast.Node, found func(e ast.Expr, v *types.Var)) {
	report := func(e ast.Expr) {
		if v, ok := rootVariable(c.TypesInfo, e).(*types.Var); ok && !isBlank(e) {
			found(e, v)
		}
	}
	c.mutations.changes(n, false, func(e ast.Expr, how change, _ bool) {
		receiver := how == called && isReceiver(c.TypesInfo, c.f.root().body, rootVariable(c.TypesInfo, e))
		if how != addressed && !receiver {
			report(e)
		}
	})
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Rhs {
				c.reportAddress(e, report)
			}
		case *ast.CallExpr:
			if fn, ok := calleeOf(c.TypesInfo, n).(*types.Func); ok && decodes(fn) {
				for _, arg := range n.Args {
					c.reportAddress(arg, report)
				}
			}
		}
		return true
	})
}

func (c *captures) reportAddress(e ast.Expr, report func(ast.Expr)) {
	if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok && u.Op == token.AND {
		report(u.X)
	}
}

// decodes reports whether fn is a function of the standard library that writes to the variables whose
// addresses it gets.
func decodes(fn *types.Func) bool {
	if !isStandard(packagePath(fn.Pkg()), nil) {
		return false
	}
	for _, prefix := range []string{"Unmarshal", "Decode", "Scan", "Sscan", "Fscan", "Read", "As"} {
		if strings.HasPrefix(fn.Name(), prefix) {
			return true
		}
	}
	return false
}

// locate finds the nodes around the call and the variables that get its task. It returns false if the
// orchestrator waits for the task in the same expression.
func (c *captures) locate() bool {
	var stack []ast.Node
	ast.Inspect(c.f.root().body, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if n == ast.Node(c.call) {
			c.outer = slices.Clone(stack)
		}
		stack = append(stack, n)
		return true
	})
	for _, n := range slices.Backward(c.outer) {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if n.Sel.Name == "Await" {
				return false
			}
		case *ast.CallExpr:
			if isAwaitAll(c.TypesInfo, n) {
				return false
			}
		case *ast.AssignStmt:
			c.addTasks(n.Lhs)
			return true
		case *ast.ValueSpec:
			c.addTasks(exprs(n.Names))
			return true
		case *ast.BlockStmt, *ast.FuncLit:
			return true
		}
	}
	return true
}

func (c *captures) addTasks(targets []ast.Expr) {
	for _, e := range targets {
		if v := rootVariable(c.TypesInfo, e); v != nil && !isBlank(e) {
			c.tasks[v] = true
		}
	}
}

func isAwaitAll(info *types.Info, n *ast.CallExpr) bool {
	fn, ok := calleeOf(info, n).(*types.Func)
	return ok && packagePath(fn.Pkg()) == durablePath && fn.Name() == "AwaitAll"
}

// awaited returns the position of the first wait for the task after the call, or the end of the function.
// A range over tasks waits for all of them at its end.
func (c *captures) awaited() token.Pos {
	body := c.f.root().body
	end, loops := body.End(), []*ast.RangeStmt(nil)
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if n.Pos() > c.call.End() && mentionsAny(c.TypesInfo, n.X, c.tasks) {
				c.addTasks(slices.DeleteFunc([]ast.Expr{n.Key, n.Value}, isBlank))
				loops = append(loops, n)
			}
		case *ast.CallExpr:
			if n.Pos() > c.call.End() && n.Pos() < end && c.awaits(n) {
				end = n.Pos()
			}
		}
		return true
	})
	for _, loop := range loops {
		if loop.Pos() < end && end < loop.End() {
			return loop.End()
		}
	}
	return end
}

// awaits reports whether n waits until the task has completed.
func (c *captures) awaits(n *ast.CallExpr) bool {
	if isAwaitAll(c.TypesInfo, n) {
		return slices.ContainsFunc(n.Args, func(arg ast.Expr) bool { return mentionsAny(c.TypesInfo, arg, c.tasks) })
	}
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Await" && mentionsAny(c.TypesInfo, sel.X, c.tasks)
}

// from returns the position where changes of v meet the running step. A step that a loop starts may run
// during the next iteration, unless the loop waits for it.
func (c *captures) from(v *types.Var, awaited token.Pos) token.Pos {
	from := c.call.End()
	for _, n := range slices.Backward(c.outer) {
		switch n.(type) {
		case *ast.FuncLit:
			return from
		case *ast.ForStmt, *ast.RangeStmt:
			if v.Pos() < n.Pos() && awaited >= n.End() {
				from = n.Pos()
			}
		}
	}
	return from
}
