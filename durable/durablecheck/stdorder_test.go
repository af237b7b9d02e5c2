package durablecheck_test

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
)

// A new version of Go may add functions with maps or sequences. Their effect on order must be listed.
func TestStandardOrder_ListsFunctionsWithMapsOrSequences(t *testing.T) {
	classes, checked := durablecheck.OrderClasses(), 0
	for _, fn := range standardFunctions(t) {
		whole := slices.Contains([]string{"slices", "maps", "iter"}, fn.Pkg().Path())
		if !whole && !hasMap(fn) || durablecheck.IsForbidden(fn) {
			continue
		}
		checked++
		if _, listed := classes[durablecheck.ListedName(fn)]; !listed {
			t.Errorf("standardOrder does not list %s, a function with maps or sequences", durablecheck.ListedName(fn))
		}
	}
	if checked < 100 {
		t.Errorf("found only %d functions with maps or sequences in the standard library", checked)
	}
}

// standardFunctions returns the exported functions and methods of the standard library.
func standardFunctions(t *testing.T) (functions []*types.Func) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output() // a program that was built with -trimpath does not know it
	if err != nil {
		t.Fatal(err)
	}
	previous := build.Default
	build.Default.GOROOT = strings.TrimSpace(string(root))
	build.Default.CgoEnabled = false // the importer would run cgo
	defer func() { build.Default = previous }()
	out, err := exec.Command("go", "list", "std").Output()
	if err != nil {
		t.Fatal(err)
	}
	from := importer.ForCompiler(token.NewFileSet(), "source", nil)
	for _, path := range strings.Fields(string(out)) {
		if strings.HasPrefix(path, "vendor/") || slices.Contains(strings.Split(path, "/"), "internal") || path == "runtime/cgo" {
			continue
		}
		p, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			switch obj := p.Scope().Lookup(name).(type) {
			case *types.Func:
				functions = append(functions, obj)
			case *types.TypeName:
				functions = append(functions, methods(obj)...)
			}
		}
	}
	return slices.DeleteFunc(functions, func(fn *types.Func) bool { return !fn.Exported() || fn.Pkg() == nil })
}

// methods returns the methods of an exported type.
func methods(name *types.TypeName) (all []*types.Func) {
	if !name.Exported() {
		return nil
	}
	set := types.NewMethodSet(types.NewPointer(name.Type()))
	if types.IsInterface(name.Type()) {
		set = types.NewMethodSet(name.Type())
	}
	for m := range set.Methods() {
		all = append(all, m.Obj().(*types.Func))
	}
	return all
}

// hasMap reports whether the receiver, a parameter or a result of fn is a map or a sequence.
func hasMap(fn *types.Func) bool {
	sig := fn.Signature()
	vars := slices.AppendSeq(slices.Collect(sig.Params().Variables()), sig.Results().Variables())
	if recv := sig.Recv(); recv != nil {
		vars = append(vars, recv)
	}
	return slices.ContainsFunc(vars, func(v *types.Var) bool { return isMapOrSequence(v.Type()) })
}

func isMapOrSequence(t types.Type) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		if pkg := t.Obj().Pkg(); pkg != nil && pkg.Path() == "iter" {
			return true
		}
	case *types.TypeParam:
		for e := range t.Constraint().Underlying().(*types.Interface).EmbeddedTypes() {
			if u, ok := e.(*types.Union); ok && u.Len() == 1 && isMapOrSequence(u.Term(0).Type()) {
				return true
			}
		}
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// Package stdorder calls each listed function in a statement with a finding, without one, or both,
// according to its class. analysistest checks the findings.
func TestStandardOrder_EachFunctionIsTested(t *testing.T) {
	t.Parallel()
	got := map[string]durablecheck.OrderClass{}
	pass := analyze().passes["stdorder"]
	for _, file := range pass.Files {
		want := linesWithWant(pass.Fset, file)
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, stmt := range fn.Body.List {
				found := want[pass.Fset.Position(stmt.Pos()).Line]
				for _, name := range calledIn(pass.TypesInfo, stmt) {
					class := got[name]
					class.WithFinding = class.WithFinding || found
					class.WithoutFinding = class.WithoutFinding || !found
					got[name] = class
				}
			}
		}
	}
	for name, class := range durablecheck.OrderClasses() {
		if class.WithFinding && !got[name].WithFinding {
			t.Errorf("package stdorder has no finding for %s", name)
		}
		if class.WithoutFinding && !got[name].WithoutFinding {
			t.Errorf("package stdorder has no statement without a finding for %s", name)
		}
	}
}

func linesWithWant(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "// want ") {
				lines[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// calledIn returns the functions that n mentions.
func calledIn(info *types.Info, n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if fn, ok := info.Uses[id].(*types.Func); ok {
				names = append(names, durablecheck.ListedName(fn))
			}
		}
		return true
	})
	return names
}
