package durablecheck

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// standardRoots are the first path elements of the standard library's packages.
const standardRoots = " archive bufio bytes cmd cmp compress container context crypto database debug embed encoding errors" +
	" expvar flag fmt go hash html image index internal io iter log maps math mime net os path plugin reflect regexp" +
	" runtime slices sort strconv strings structs sync syscall testing text time unicode unique unsafe vendor weak "

// isStandard reports whether the package with the given path, in the given module, belongs to the
// standard library. Analysis drivers do not report this: they pass no module for the standard library,
// but in GOPATH mode and under other build systems they pass no module for any package. A module may
// have the same path as a standard package.
func isStandard(path string, module *analysis.Module) bool {
	if module != nil && module.Path != "" && module.Path != "std" && module.Path != "cmd" {
		return false
	}
	root, _, _ := strings.Cut(path, "/")
	return strings.Contains(standardRoots, " "+root+" ")
}

// packagePath returns the import path of p. Under go vet, a package that is compiled with its tests
// has the path "p [p.test]".
func packagePath(p *types.Package) string {
	if p == nil {
		return ""
	}
	path, _, _ := strings.Cut(p.Path(), " ")
	return path
}
