package durablecheck_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestAnalyzer_ReportsClocksAndTimers(t *testing.T)                  { check(t, "clock") }
func TestAnalyzer_ReportsRandomValues(t *testing.T)                     { check(t, "random") }
func TestAnalyzer_ReportsEnvironmentFilesAndNetwork(t *testing.T)       { check(t, "files") }
func TestAnalyzer_ReportsGoroutinesChannelsAndLocks(t *testing.T)       { check(t, "concurrency") }
func TestAnalyzer_ReportsPrintsAndLogs(t *testing.T)                    { check(t, "logs") }
func TestAnalyzer_ReportsDurableCallsInDefers(t *testing.T)             { check(t, "defers") }
func TestAnalyzer_ReportsDirectCallsOfActivities(t *testing.T)          { check(t, "direct") }
func TestAnalyzer_ReportsPackageLevelState(t *testing.T)                { check(t, "variables") }
func TestAnalyzer_ReportsMapOrderWithAnEffect(t *testing.T)             { check(t, "maporder") }
func TestAnalyzer_KnowsTheOrderOfStandardFunctions(t *testing.T)        { check(t, "stdorder") }
func TestAnalyzer_IgnoresFindingsWithAComment(t *testing.T)             { check(t, "ignored") }
func TestAnalyzer_FollowsCallsAndNamesThem(t *testing.T)                { check(t, "chains") }
func TestAnalyzer_FollowsCallsIntoOtherPackages(t *testing.T)           { check(t, "facts/app", "facts/lib") }
func TestAnalyzer_RecognizesOrchestratorsByTheirSignature(t *testing.T) { check(t, "shapes") }
func TestAnalyzer_ReportsPatchesWithoutAConstantID(t *testing.T)        { check(t, "patches") }
func TestAnalyzer_ReportsMisusedSteps(t *testing.T)                     { check(t, "steps") }
func TestAnalyzer_AllowsPureCode(t *testing.T)                          { check(t, "pure") }

// check compares the analyzer's findings in packages of testdata/src with their want comments.
func check(t *testing.T, packages ...string) {
	t.Helper()
	t.Parallel()
	for _, p := range packages {
		if !slices.Contains(testdataPackages(), p) {
			t.Errorf("package %s is not analyzed", p)
		}
	}
	for _, message := range analyze().messages {
		ours := slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(message, p+"/") })
		if ours || !strings.Contains(message, ".go:") {
			t.Error(message)
		}
	}
}

// An outcome contains the results of the analyzer for testdata/src.
type outcome struct {
	messages   []string // missing and unexpected diagnostics
	categories []string // of the diagnostics
	passes     map[string]*analysis.Pass
}

// analyze analyzes all packages of testdata/src together, because loading the standard library takes most
// of the time.
var analyze = sync.OnceValue(func() outcome {
	a := outcome{passes: map[string]*analysis.Pass{}}
	for _, result := range analysistest.Run(&a, analysistest.TestData(), durablecheck.Analyzer, testdataPackages()...) {
		a.passes[result.Pass.Pkg.Path()] = result.Pass
		for _, d := range result.Diagnostics {
			a.categories = append(a.categories, d.Category)
		}
	}
	return a
})

// Errorf makes an outcome an [analysistest.Testing].
func (a *outcome) Errorf(format string, args ...any) {
	a.messages = append(a.messages, fmt.Sprintf(format, args...))
}

// testdataPackages returns the packages in testdata/src, except those that represent other modules.
var testdataPackages = sync.OnceValue(func() (packages []string) {
	dirs, err := os.ReadDir("testdata/src")
	if err != nil {
		panic(err)
	}
	for _, d := range dirs {
		switch d.Name() {
		case "github.com":
		case "facts":
			packages = append(packages, "facts/app", "facts/lib")
		default:
			packages = append(packages, d.Name())
		}
	}
	return packages
})

// Every package in testdata/src is checked by a test.
func TestAnalyzer_IsTestedWithEveryTestdataPackage(t *testing.T) {
	source, err := os.ReadFile("analyzer_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range testdataPackages() {
		if !strings.Contains(string(source), fmt.Sprintf("{ check(t, %q", p)) && !strings.Contains(string(source), fmt.Sprintf(", %q) }", p)) {
			t.Errorf("no test checks package %s", p)
		}
	}
}

func TestRules_AreDocumentedAndTested(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range durablecheck.Rules() {
		if !regexp.MustCompile(`(?m)^//\t` + rule + ` +\S`).Match(doc) {
			t.Errorf("the package comment does not list rule %s", rule)
		}
		if !slices.Contains(analyze().categories, rule) {
			t.Errorf("no diagnostic in testdata has category %s", rule)
		}
	}
}
