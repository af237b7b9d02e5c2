package durablecheck_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

// Users copy the sample app with its tests, and the examples of package durable. The other tests of
// package durable break rules deliberately.
func TestAnalyzer_ReportsNothingInTheSampleAppAndTheExamples(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax | packages.NeedModule, Dir: root, Tests: true,
	}, "./functions/...", "./durable")
	if err != nil {
		t.Fatal(err)
	}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, err := range p.Errors {
			t.Errorf("load %s: %v", p.PkgPath, err)
		}
	})
	if t.Failed() {
		return
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{durablecheck.Analyzer}, loaded, nil)
	if err != nil {
		t.Fatal(err)
	}
	orchestrators, examples := 0, 0
	for _, act := range graph.Roots {
		if act.Err != nil {
			t.Errorf("analyze %s: %v", act.Package.ID, act.Err)
			continue
		}
		for _, file := range act.Package.GoFiles {
			if strings.HasPrefix(filepath.Base(file), "example") {
				examples++
			}
		}
		for _, f := range act.AllObjectFacts() {
			if f.Object.Pkg() == act.Package.Types && strings.Contains(fmt.Sprint(f.Fact), "durable: durable.CallActivity") {
				orchestrators++
			}
		}
		for _, d := range act.Diagnostics {
			at := act.Package.Fset.Position(d.Pos)
			dir, file := filepath.Split(at.Filename)
			if dir == filepath.Join(root, "durable")+"/" && !strings.HasPrefix(file, "example") {
				continue
			}
			t.Errorf("%s: %s", at, d.Message)
		}
	}
	if orchestrators == 0 || examples == 0 {
		t.Errorf("checked %d orchestrators of the app and %d files with examples; want at least one of each", orchestrators, examples)
	}
}
