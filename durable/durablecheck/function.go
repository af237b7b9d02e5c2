package durablecheck

import (
	"go/ast"
	"go/token"
	"go/types"
)

// A function contains the results for a function of the current package: a declared function, a
// literal that is an orchestrator, a named literal, or the initializer of a package-level variable.
type function struct {
	step step
	// outer is the function that contains a named literal, otherwise nil. Operations of the literal
	// count as operations of outer.
	outer *function
	// orchestrator means that findings are reported in the function itself and not in its callers.
	orchestrator bool
	// initialiser means that this is the initializer of a variable that is not a function.
	initialiser bool
	// inStep means that this is the function of a step, or another function with a context.Context. The
	// rules for orchestrators do not apply to it.
	inStep bool
	// owner is the function that reports misuse by a step or its local function, nil for other functions.
	owner *function
	body  ast.Node

	uses      []use
	calls     []call
	stepCalls []call // functions with a name that steps run
	loops     []*mapLoop

	// Results for its callers; see checker.resolve.
	reaches   map[rule]finding
	durable   *durableUse
	unordered bool // it returns a slice or sequence in map order
}

// A use is a finding and its position.
type use struct {
	pos     token.Pos
	finding finding
}

// A call is a mention of another function, which may run.
type call struct {
	pos      token.Pos
	callee   types.Object
	deferred bool
	loops    []*mapLoop // map ranges around the call, innermost last
	order    order      // use of the order of its result
	ignored  bool       // a comment ignores its findings
}

// A durableUse is a durable call that a function makes.
type durableUse struct {
	Call string // durable.CallActivity
	Via  []step
}

// through returns d from the perspective of a caller of s.
func (d *durableUse) through(s step) *durableUse {
	return &durableUse{Call: d.Call, Via: append([]step{s}, d.Via...)}
}

// text returns the name of the call and the chain of calls to it. path is the package of the reader.
func (d *durableUse) text(path string) string {
	if len(d.Via) == 0 {
		return d.Call
	}
	return d.Call + " via " + chain(d.Via, path)
}

// root returns the outermost function that contains f.
func (f *function) root() *function {
	for f.outer != nil {
		f = f.outer
	}
	return f
}

// settles reports whether the map order that v has at pos has no effect in f.
func (f *function) settles(info *types.Info, v types.Object, pos token.Pos) bool {
	return settles(info, f.root().body, v, pos)
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

// A summary is the fact about a function or a package-level variable of another package.
type summary struct {
	Module    string
	Reaches   []finding
	Durable   *durableUse
	Unordered bool
	Mutable   bool // for a variable: it changes while the program runs
	Mutates   bool // for a method: it changes its receiver
}

// AFact implements analysis.Fact.
func (*summary) AFact() {}

// String returns the facts of s in the form of the tests.
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
