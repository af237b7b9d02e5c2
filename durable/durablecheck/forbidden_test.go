package durablecheck_test

import (
	"go/types"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

// A misspelled name, or a name that Go has removed, would silently match nothing.
func TestForbidden_ContainsOnlyExistingNames(t *testing.T) {
	t.Parallel()
	listed := durablecheck.ForbiddenNames()
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes}, slices.Sorted(maps.Keys(listed))...)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != len(listed) {
		t.Fatalf("loaded %d packages of %d", len(loaded), len(listed))
	}
	for _, p := range loaded {
		for _, err := range p.Errors {
			t.Errorf("load %s: %v", p.PkgPath, err)
		}
		names := namesIn(p.Types)
		for _, entry := range listed[p.PkgPath] {
			for pattern := range strings.FieldsSeq(entry) {
				if !slices.ContainsFunc(names, func(name string) bool { return durablecheck.Matches(pattern, name) }) {
					t.Errorf("%s: no name matches %s", p.PkgPath, pattern)
				}
			}
		}
	}
}

// namesIn returns the exported functions, variables and methods of p, in the form of the list.
func namesIn(p *types.Package) []string {
	var names []string
	for _, name := range p.Scope().Names() {
		switch obj := p.Scope().Lookup(name).(type) {
		case *types.Func, *types.Var:
			names = append(names, name)
		case *types.TypeName:
			set := types.NewMethodSet(types.NewPointer(obj.Type()))
			if types.IsInterface(obj.Type()) {
				set = types.NewMethodSet(obj.Type())
			}
			for m := range set.Methods() {
				names = append(names, name+"."+m.Obj().Name())
			}
		}
	}
	return names
}

func TestIsStandard_RecognizesEveryStandardPackage(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "std").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(string(out))
	if len(paths) < 150 {
		t.Fatalf("go list std returned only %d packages", len(paths))
	}
	for _, path := range paths {
		if !durablecheck.IsStandard(path, nil) {
			t.Errorf("isStandard(%q) = false, want true", path)
		}
	}
}

func TestIsStandard_RejectsOtherModules(t *testing.T) {
	for _, test := range []struct {
		name, path string
		module     *analysis.Module
		want       bool
	}{
		{"a standard package under a driver with an empty module", "net/http", &analysis.Module{}, true},
		{"a standard package of module std", "net/http", &analysis.Module{Path: "std"}, true},
		{"a module without a dot", "app/orders", &analysis.Module{Path: "app"}, false},
		{"a module with the name of a standard package", "log/orders", &analysis.Module{Path: "log"}, false},
		{"a package without a module", "app/orders", nil, false},
		{"a path with a dot", "golang.org/x/sync/errgroup", nil, false},
		{"a vendored package of the Go distribution", "vendor/golang.org/x/net/idna", nil, true},
	} {
		if got := durablecheck.IsStandard(test.path, test.module); got != test.want {
			t.Errorf("%s: %s standard: %t, want %t", test.name, test.path, got, test.want)
		}
	}
}
