package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// A function is what is known of a function of the current package: a declared
// one, an orchestrator's literal, a literal with a name of its own, or the
// initialiser of a package-level variable.
type function struct {
	step step
	// outer is the function that a named literal stands in, otherwise nil. What
	// it does counts as done by outer, at the place where it is written.
	outer *function
	// orchestrator says that its findings are reported where they are, and that
	// callers need not repeat them.
	orchestrator bool
	// initialiser says that it is the initialiser of a variable that is no
	// function.
	initialiser bool
	body        ast.Node

	uses  []use
	calls []call
	loops []*mapLoop

	// What its callers must know; see checker.resolve.
	reaches   map[rule]finding
	durable   *durableUse
	unordered bool // it returns a slice or sequence in the order of a map
}

// A use is a finding at the place that it is about.
type use struct {
	pos     token.Pos
	finding finding
}

// A call is a mention of another function, which may run.
type call struct {
	pos      token.Pos
	callee   types.Object
	deferred bool
	loops    []*mapLoop // the map ranges around it, the innermost last
	order    order      // what becomes of the order of its result
	ignored  bool       // a comment says that its findings do not count
}

// A durableUse says that a function makes a durable call.
type durableUse struct {
	Call string // durable.CallActivity
	Via  []step
}

// through returns d as it is seen by a caller of s.
func (d *durableUse) through(s step) *durableUse {
	return &durableUse{Call: d.Call, Via: append([]step{s}, d.Via...)}
}

// text names the call and how it is reached, in the package with the given
// path.
func (d *durableUse) text(path string) string {
	if len(d.Via) == 0 {
		return d.Call
	}
	return d.Call + " via " + chain(d.Via, path)
}

// A mapLoop is a range over a map.
type mapLoop struct {
	stmt     *ast.RangeStmt
	name     string // of what is ranged over
	reported bool   // or need not be
}

// root returns the function that f's code stands in.
func (f *function) root() *function {
	for f.outer != nil {
		f = f.outer
	}
	return f
}

// sorts reports whether f sorts v, or the parts of v one after the other, behind
// pos.
func (f *function) sorts(info *types.Info, v types.Object, pos token.Pos) bool {
	of := map[types.Object]bool{v: true}
	found := false
	ast.Inspect(f.root().body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if mentionsAny(info, n.X, of) {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if id, ok := e.(*ast.Ident); ok && !isBlank(id) {
						of[info.ObjectOf(id)] = true
					}
				}
			}
		case *ast.CallExpr:
			found = found || n.Pos() >= pos && sortsAny(info, n, of)
		}
		return !found
	})
	return found
}

// returns reports whether f returns v.
func (f *function) returns(info *types.Info, v types.Object) bool {
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
				found = found || ok && info.Uses[id] == v
			}
		}
		return true
	})
	if t == nil || t.Results == nil {
		return found
	}
	for _, field := range t.Results.List {
		for _, name := range field.Names {
			found = found || info.Defs[name] == v
		}
	}
	return found
}

// A summary is what is known of a function or a package-level variable of
// another package.
type summary struct {
	Module    string
	Reaches   []finding
	Durable   *durableUse
	Unordered bool
	Mutable   bool // of a variable: it is changed while the program runs
	Mutates   bool // of a method: it changes what it is called on
}

// AFact makes summary a fact.
func (*summary) AFact() {}

// String returns the facts of s as tests write them.
func (s *summary) String() string {
	text := ""
	add := func(word string) {
		if text != "" {
			text += ", "
		}
		text += word
	}
	for _, f := range s.Reaches {
		add(string(f.Rule) + ": " + f.Subject)
		if len(f.Via) > 0 {
			text += " via " + chain(f.Via, "")
		}
	}
	if s.Durable != nil {
		add("durable: " + s.Durable.text(""))
	}
	if s.Unordered {
		add("unordered")
	}
	if s.Mutable {
		add("mutable")
	}
	if s.Mutates {
		add("mutates")
	}
	return text
}
