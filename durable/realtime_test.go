package durable_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// timed lists functions that wait for real time outside a synctest bubble.
var timed = map[string][]string{
	"time":    {"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
}

// realTime marks a line that may wait for real time. The reason follows it.
const realTime = "// real time: "

// Tests below durable may wait for real time only if a comment gives the reason. In a
// synctest bubble, time advances when all goroutines wait, and package patience waits
// for events.
func TestTests_WaitForRealTimeOnlyWithAReason(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if entry.Name() == "testdata" || path == filepath.Join("internal", "sim") { // package sim runs all its hubs in bubbles
			return filepath.SkipDir
		}
		p, err := parseTests(path)
		if err != nil {
			return err
		}
		for _, c := range p.waits() {
			found++
			if reason, ok := strings.CutPrefix(p.comments[c.position.Filename][c.position.Line], realTime); !ok || reason == "" {
				t.Errorf("%s: %s outside a bubble; use synctest.Test or package patience, or end the line with \"%s\" and the reason", c.position, c.name, strings.TrimSpace(realTime))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("found no test that waits for real time, although some kill processes at random times")
	}
}

// testFiles are the test files of a directory.
type testFiles struct {
	set      *token.FileSet
	files    []*ast.File
	comments map[string]map[int]string // by file and line
	bubbles  map[string]bool           // functions that run their arguments in a bubble
}

// wait is a call of a function in [timed].
type wait struct {
	position token.Position
	name     string
}

func parseTests(dir string) (*testFiles, error) {
	p := &testFiles{set: token.NewFileSet(), comments: map[string]map[int]string{}, bubbles: map[string]bool{".Each": true}} // Each is a method of chaintest.Seeds
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		file, err := parser.ParseFile(p.set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, file)
		lines := map[int]string{}
		for _, group := range file.Comments {
			for _, c := range group.List {
				lines[p.set.Position(c.Pos()).Line] = c.Text
			}
		}
		p.comments[name] = lines
	}
	return p, nil
}

// scope is the function of a piece of code, and whether the code runs in a bubble.
type scope struct {
	function string // or the variable; a method has a dot before its name
	bubble   bool
}

// walk visits all expressions of the files with their scopes.
func (p *testFiles) walk(visit func(n ast.Node, in scope)) {
	for _, file := range p.files {
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = "." + name
				}
				p.inspect(d.Body, scope{function: name}, visit)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, value := range v.Values {
							p.inspect(value, scope{function: v.Names[0].Name}, visit)
						}
					}
				}
			}
		}
	}
}

func (p *testFiles) inspect(root ast.Node, in scope, visit func(ast.Node, scope)) {
	ast.Inspect(root, func(n ast.Node) bool {
		visit(n, in)
		call, ok := n.(*ast.CallExpr)
		if !ok || in.bubble || !p.bubbles[calleeName(call)] && !isCall(call, "synctest", "Test") {
			return true
		}
		p.inspect(call.Fun, in, visit)
		for _, arg := range call.Args {
			_, literal := arg.(*ast.FuncLit)
			p.inspect(arg, scope{in.function, literal}, visit)
		}
		return false
	})
}

// waits returns the calls of functions in [timed] that tests make outside a bubble.
func (p *testFiles) waits() (found []wait) {
	for before := -1; before < len(p.bubbles); { // a function that calls one of these functions is one of them
		before = len(p.bubbles)
		p.walk(func(n ast.Node, in scope) {
			if call, ok := n.(*ast.CallExpr); ok && (isCall(call, "synctest", "Test") || p.bubbles[calleeName(call)]) && !isRoot(in.function) {
				p.bubbles[in.function] = true
			}
		})
	}
	names := map[string][]string{} // names that each function uses outside a bubble
	p.walk(func(n ast.Node, in scope) {
		if in.bubble {
			return
		}
		switch n := n.(type) {
		case *ast.SelectorExpr:
			names[in.function] = append(names[in.function], "."+n.Sel.Name)
		case *ast.Ident:
			names[in.function] = append(names[in.function], n.Name)
		}
	})
	outside := map[string]bool{} // functions that tests call outside a bubble
	var mention func(function string)
	mention = func(function string) {
		for _, name := range names[function] {
			if !outside[name] {
				outside[name] = true
				mention(name)
			}
		}
	}
	for function := range names {
		if isTest(function) {
			mention(function)
		}
	}
	p.walk(func(n ast.Node, in scope) {
		call, ok := n.(*ast.CallExpr)
		if !ok || in.bubble || !isTest(in.function) && !outside[in.function] {
			return
		}
		for _, pkg := range slices.Sorted(maps.Keys(timed)) {
			for _, name := range timed[pkg] {
				if isCall(call, pkg, name) && !slices.ContainsFunc(call.Args, isLimit) {
					found = append(found, wait{p.set.Position(call.Pos()), fmt.Sprintf("%s.%s", pkg, name)})
				}
			}
		}
	})
	return found
}

var rootName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)([^a-z]|$)|^init$`)

// isRoot reports whether go test runs a function with this name.
func isRoot(function string) bool { return rootName.MatchString(function) }

// isTest reports whether go test runs a function with this name, except benchmarks,
// which measure real time.
func isTest(function string) bool {
	return isRoot(function) && !strings.HasPrefix(function, "Benchmark")
}

// isCall reports whether call is a call of the function name in package pkg.
func isCall(call *ast.CallExpr, pkg, name string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	id, ok := selector.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// isLimit reports whether an expression is a call of patience.Limit.
func isLimit(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && isCall(call, "patience", "Limit")
}

// calleeName returns the name of the called function. A method has a dot before its
// name.
func calleeName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return "." + f.Sel.Name
	}
	return ""
}
