package durable_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/durablefunctions-go/durablefunctions/"

// listed is a package in the output of go list.
type listed struct {
	ImportPath string
	Imports    []string // direct imports
	Deps       []string // direct and indirect imports
}

// forbidden is an import that must not exist: package from must not import package to
// or a package below it.
type forbidden struct {
	from   string
	to     string
	direct bool // check direct imports only; the standard library imports many packages
	but    []string
}

// The packages form layers; see the diagram in durable/README.md.
func TestImports_FollowTheLayers(t *testing.T) {
	rules := []forbidden{
		{from: "durable/history", to: module},
		{from: "durable/provider", to: module, but: []string{module + "durable/history"}},
		{from: "durable/internal/coro", to: module},
		{from: "durable/internal/replay", to: module, but: []string{
			module + "durable/history", module + "durable/internal/coro", module + "durable/internal/entity", module + "durable/internal/eventjson",
		}},
		{from: "durable/internal/entity", to: module, but: []string{module + "durable/history", module + "durable/internal/eventjson"}},
		{from: "durable/internal/dispatch", to: module + "durable/azurestorage"},
		{from: "durable", to: module + "durable/azurestorage"},
		{from: "durable", to: module + "handler"},
		{from: "durable", to: "github.com/Azure/"},
		{from: "durable", to: "github.com/labstack/"},
		{from: "durable/azurestorage", to: module, but: []string{
			module + "durable/azurestorage", module + "durable/azurestorage/internal/inbound", module + "durable/azurestorage/internal/outbound", module + "durable/azurestorage/internal/inflight", module + "durable/azurestorage/internal/monitor", module + "durable/azurestorage/internal/disposition", module + "durable/azurestorage/internal/hubcopy",
			module + "durable/azurestorage/internal/instances", module + "durable/azurestorage/internal/jumpstart", module + "durable/azurestorage/internal/leases", module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/tracking",
			module + "durable/azurestorage/internal/wire", module + "durable/history", module + "durable/provider", module + "durable/internal/eventjson",
			module + "durable/internal/chance", module + "durable/internal/clocks", module + "durable/internal/inuse", module + "durable/internal/metering", module + "durable/internal/pause", module + "durable/internal/storageop",
		}},
		{from: "durable/azurestorage/internal/wire", to: module, but: []string{module + "durable/history", module + "durable/internal/eventjson", module + "durable/provider"}},
		{from: "durable/azurestorage/internal/wire", to: "github.com/Azure/"},
		{from: "durable/azurestorage/internal/leases", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/disposition", to: "log/slog", direct: true},
		{from: "durable/azurestorage/internal/disposition", to: "sync", direct: true},
		{from: "durable/azurestorage/internal/disposition", to: "context", direct: true},
		{from: "durable/azurestorage/internal/hubcopy", to: module + "durable/azurestorage/internal/leases"},
		{from: "durable/azurestorage/internal/inbound", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/disposition", module + "durable/azurestorage/internal/inflight", module + "durable/azurestorage/internal/instances", module + "durable/azurestorage/internal/leases", module + "durable/azurestorage/internal/monitor", module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/tracking", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/inflight", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/disposition", module + "durable/azurestorage/internal/instances", module + "durable/azurestorage/internal/monitor", module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/tracking", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/instances", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/instances", module + "durable/azurestorage/internal/store",
			module + "durable/azurestorage/internal/tracking", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/jumpstart", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/jumpstart", module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/monitor", to: module, but: []string{module + "durable/internal/clocks", module + "durable/internal/metering"}},
		{from: "durable/azurestorage/internal/outbound", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/disposition", module + "durable/azurestorage/internal/inflight", module + "durable/azurestorage/internal/instances", module + "durable/azurestorage/internal/monitor", module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/tracking", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/tracking", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/tracking", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/internal/store", to: module, but: []string{
			module + "durable/azurestorage/internal/wire", module + "durable/history", module + "durable/provider", module + "durable/internal/chance", module + "durable/internal/eventjson",
			module + "durable/internal/inuse", module + "durable/internal/metering", module + "durable/internal/pause", module + "durable/internal/storageop",
		}},
		{from: "durable/azurestorage/partitionlog/internal/chain", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/wire",
		}},
		{from: "durable/azurestorage/partitionlog/internal/chain", to: module + "durable/internal/logstore"},
		{from: "durable/azurestorage/partitionlog/internal/bloblog", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/wire", module + "durable/azurestorage/partitionlog/internal/chain",
		}},
		{from: "durable/azurestorage/partitionlog/internal/mailbox", to: module + "durable/azurestorage", but: []string{
			module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/wire", module + "durable/azurestorage/partitionlog/internal/chain",
		}},
		{from: "durable/azurestorage/partitionlog/internal/runs", to: module, but: []string{
			module + "durable/azurestorage/partitionlog/internal/runs", module + "durable/azurestorage/internal/store", module + "durable/azurestorage/internal/wire",
			module + "durable/history", module + "durable/provider", module + "durable/internal/chance", module + "durable/internal/eventjson", module + "durable/internal/inuse",
			module + "durable/internal/logstore", module + "durable/internal/metering", module + "durable/internal/pause", module + "durable/internal/reclaim", module + "durable/internal/storageop",
		}},
		{from: "durable/azurestorage/partitionlog/internal/runs", to: "github.com/Azure/", direct: true},
		{from: "durable/internal/clocks", to: module},
		{from: "durable/internal/metering", to: module},
		{from: "durable/internal/storageop", to: module},
		{from: "durable/internal/gofunction", to: module},
		{from: "durable/internal/eventjson", to: module, but: []string{module + "durable/history"}},
		{from: "durable/internal/explain", to: module, but: []string{
			module + "durable/history", module + "durable/internal/coro", module + "durable/internal/entity", module + "durable/internal/eventjson", module + "durable/internal/replay",
		}},
		{from: "durable/embedded", to: module, but: []string{
			module + "durable/embedded", module + "durable/embedded/internal/hubfile", module + "durable/history", module + "durable/provider",
			module + "durable/internal/disk", module + "durable/internal/inuse", module + "durable/internal/logstore", module + "durable/internal/metering",
			module + "durable/internal/partition", module + "durable/internal/reclaim",
		}},
		{from: "durable/internal/partition", to: module, but: []string{
			module + "durable/history", module + "durable/provider", module + "durable/internal/inuse", module + "durable/internal/logstore",
			module + "durable/internal/partition", module + "durable/internal/reclaim",
		}},
		{from: "durable/internal/partition", to: "go.etcd.io/"},
		{from: "durable/internal/partition", to: "os", direct: true},
		{from: "durable/embedded", to: "go.etcd.io/", direct: true},
		{from: "durable/embedded/internal/hubfile", to: module, but: []string{
			module + "durable/embedded/internal/hubfile", module + "durable/internal/disk", module + "durable/internal/logstore", module + "durable/internal/reclaim",
		}},
		{from: "durable/internal/logstore", to: module, but: []string{module + "durable/internal/logstore", module + "durable/internal/reclaim"}},
		{from: "durable/internal/logstore", to: "go.etcd.io/"},
		{from: "durable/internal/logstore", to: "os", direct: true},
		{from: "durable/internal/disk", to: module},
		{from: "durable/internal/reclaim", to: module},
		{from: "durable/internal/inuse", to: module},
		{from: "durable/embedded", to: "github.com/Azure/"},
		{from: "handler", to: module + "functions"},
		{from: "handler/internal/settings", to: module, but: []string{module + "handler/internal/secrets"}},
		{from: "handler/internal/settings", to: "github.com/labstack/"},
		{from: "handler/internal/triggers", to: module, but: []string{module + "handler/internal/jsontext", module + "handler/internal/secrets", module + "handler/internal/settings"}},
		{from: "handler/internal/triggers", to: "net/http", direct: true},
		{from: "handler/internal/taskhub", to: module + "handler", but: []string{module + "handler/internal/secrets", module + "handler/internal/taskhub"}},
		{from: "handler/internal/taskhub", to: "github.com/labstack/"},
		{from: "handler/internal/web", to: module + "handler", but: []string{
			module + "handler/internal/jsontext", module + "handler/internal/secrets", module + "handler/internal/taskhub", module + "handler/internal/web",
		}},
		{from: "handler/internal/management", to: module + "handler/internal/triggers"},
		{from: "handler/internal/management", to: module + "handler/internal/hubcli"},
		{from: "handler/internal/management", to: module + "handler/internal/console"},
		{from: "handler/internal/console", to: module + "handler/internal/triggers"},
		{from: "handler/internal/console", to: module + "handler/internal/hubcli"},
	}
	for _, pure := range []string{"durable/internal/coro", "durable/internal/entity", "durable/internal/replay"} {
		for _, impure := range []string{"context", "sync", "log/slog", "net", "os", "math/rand", "crypto/rand"} {
			rules = append(rules, forbidden{from: pure, to: impure, direct: true})
		}
	}
	for _, impure := range []string{"context", "sync", "log/slog", "os", "net/http"} {
		rules = append(rules, forbidden{from: "durable/azurestorage/internal/wire", to: impure, direct: true})
	}
	for _, production := range []string{"durable", "durable/history", "durable/provider", "durable/azurestorage", "durable/embedded", "durable/embedded/internal/hubfile", "durable/azurestorage/partitionlog/internal/bloblog", "durable/azurestorage/partitionlog/internal/mailbox", "durable/azurestorage/partitionlog/internal/runs", "durable/internal/logstore", "durable/internal/partition", "durable/internal/replay", "durable/internal/dispatch", "handler", "functions"} {
		rules = append(rules, forbidden{from: production, to: "testing"})
	}
	packages := list(t)
	for _, rule := range rules {
		from, ok := packages[module+rule.from]
		if !ok {
			t.Errorf("package %s does not exist", rule.from)
			continue
		}
		imports := from.Deps
		if rule.direct {
			imports = from.Imports
		}
		for _, path := range imports {
			if below(path, rule.to) && !slices.Contains(rule.but, path) {
				t.Errorf("%s imports %s", rule.from, path)
			}
		}
	}
}

// below reports whether pkg is the package path or is inside it.
func below(pkg, path string) bool {
	path = strings.TrimSuffix(path, "/")
	return pkg == path || strings.HasPrefix(pkg, path+"/")
}

func list(t *testing.T, flags ...string) map[string]listed {
	t.Helper()
	args := append([]string{"list", "-json=ImportPath,Imports,Deps"}, flags...)
	out, err := exec.CommandContext(t.Context(), "go", append(args, module+"...")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// The table of packages in README.md must name each package exactly once.
func TestREADME_NamesEveryPackage(t *testing.T) {
	left := list(t)
	for path := range describedPackages(t, left) {
		delete(left, path)
	}
	for path := range left {
		t.Errorf("README.md does not describe %s", strings.TrimPrefix(path, module))
	}
}

// Apps must not link support for tests. The sample app imports what each app imports.
func TestImports_NoAppLinksTestSupport(t *testing.T) {
	packages := list(t)
	linked := packages[module+"functions"].Deps
	if len(linked) < 100 {
		t.Fatalf("the sample app links %d packages", len(linked))
	}
	support := map[string]bool{"testing": true, "net/http/httptest": true, "github.com/google/go-cmp/cmp": true}
	for path, text := range describedPackages(t, packages) {
		if strings.HasPrefix(text, "For tests") || strings.HasPrefix(text, "Tests only") {
			support[path] = true
		}
	}
	if len(support) < 15 {
		t.Errorf("README.md marks %d packages as support for tests; want at least 15", len(support))
	}
	for _, path := range linked {
		if support[path] || slices.Contains(packages[path].Imports, "testing") {
			t.Errorf("the sample app links %s, which is for tests", path)
		}
	}
}

// Go's race detector can crash in a bubble of testing/synctest on several processors; see oneprocessor.
func TestImports_TestsInBubblesUseOneProcessorWithTheRaceDetector(t *testing.T) {
	bubbles := 0
	for path, p := range list(t, "-test") {
		if !strings.HasSuffix(path, ".test") || !slices.Contains(p.Deps, "testing/synctest") {
			continue
		}
		bubbles++
		if !slices.Contains(p.Deps, module+"durable/durabletest/oneprocessor") {
			t.Errorf("the tests of %s use testing/synctest: add the import _ \"%sdurable/durabletest/oneprocessor\" to a test file", strings.TrimSuffix(path, ".test"), module)
		}
	}
	if bubbles < 30 {
		t.Errorf("%d packages use testing/synctest; want at least 30", bubbles)
	}
}

// Only apps that export telemetry link the exporters, which are many packages.
func TestImports_OnlyAppsWithTelemetryLinkItsExporters(t *testing.T) {
	packages := list(t)
	heavy := []string{"google.golang.org/grpc", "google.golang.org/protobuf", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"}
	for _, path := range packages[module+"functions"].Deps {
		for _, exporter := range heavy {
			if below(path, exporter) {
				t.Errorf("the sample app links %s", path)
			}
		}
	}
	exported := packages[module+"handler/otlp"].Deps
	for _, exporter := range heavy {
		if !slices.ContainsFunc(exported, func(path string) bool { return below(path, exporter) }) {
			t.Errorf("handler/otlp does not link %s; remove it from the list", exporter)
		}
	}
}

// describedPackages returns the packages in the table of README.md with their descriptions.
func describedPackages(t *testing.T, packages map[string]listed) map[string]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| package | purpose |")
	table, _, _ = strings.Cut(table, "\n\n")
	linked := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	described := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || strings.HasPrefix(cells[1], "--") {
			continue
		}
		for name := range strings.SplitSeq(linked.ReplaceAllString(cells[1], "$1"), ",") {
			name = strings.TrimSpace(name)
			path := module + name
			if _, ok := packages[path]; !ok {
				path = module + "durable/" + name
			}
			_, ok := packages[path]
			if _, twice := described[path]; !ok || twice {
				t.Errorf("README.md names %s, which is not a package or is named twice", name)
			}
			described[path] = strings.TrimSpace(cells[2])
		}
	}
	return described
}

// Go files that a README names must exist.
func TestREADMEs_NameFilesThatExist(t *testing.T) {
	var files, documents []string
	for _, name := range tracked(t) {
		switch filepath.Ext(name) {
		case ".go":
			files = append(files, "/"+name)
		case ".md":
			documents = append(documents, name)
		}
	}
	named := regexp.MustCompile("`([\\w./-]+\\.go)(?::\\d+)?`")
	found := 0
	for _, document := range documents {
		text, err := os.ReadFile(filepath.Join("..", document))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(file, "/"+m[1]) }) {
				t.Errorf("%s names %s, which does not exist", document, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("the READMEs name %d files; want at least 20", found)
	}
}

// tracked returns the paths of the tracked files, relative to the root of the module.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", "..", "ls-files").Output()
	if err != nil {
		t.Skipf("no checkout: %v", err) // the layout of an unpacked module is not checked
	}
	return strings.Fields(string(out))
}

// The top level contains only the files of the product, and files that tools look up by
// name.
func TestLayout_TopLevelContainsOnlyKnownNames(t *testing.T) {
	given := []string{
		"go.mod", "go.sum", "handler", "durable", "functions", "host.json", "local.settings.json", "scripts", "README.md", "LICENSE", "CHANGELOG.md",
	}
	for _, name := range tracked(t) {
		top, _, _ := strings.Cut(name, "/")
		if !strings.HasPrefix(top, ".") && !slices.Contains(given, top) {
			t.Errorf("%s is at the top level; move it into durable, handler, functions or scripts", top)
		}
	}
}

// Tests share http.DefaultTransport, and closing a test server closes its idle connections.
func TestLayout_TestsWithHTTPServersKeepTheDefaultTransport(t *testing.T) {
	starts := regexp.MustCompile(`httptest\.New\w*Server\(`)
	serving, keeping := map[string]bool{}, map[string]bool{}
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		serving[path.Dir(name)] = serving[path.Dir(name)] || starts.Match(text)
		keeping[path.Dir(name)] = keeping[path.Dir(name)] || strings.Contains(string(text), "\nfunc init() { http.DefaultTransport =")
	}
	for dir, serves := range serving {
		if serves && !keeping[dir] {
			t.Errorf("tests of %s start HTTP servers: copy the function init of durable/httpactivity_test.go", dir)
		}
	}
}

// Methods must be in the file of their type, except in the Azure Storage hub.
func TestLayout_MethodsAreInTheFileOfTheirType(t *testing.T) {
	t.Parallel()
	type name struct{ dir, of string }
	type method struct {
		of         name
		name, path string
	}
	types, methods := map[name]string{}, []method(nil) // types maps type names to files
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "azurestorage" || strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				types[name{dir, n.Name.Name}] = path
			case *ast.FuncDecl:
				if n.Recv == nil {
					return false
				}
				ast.Inspect(n.Recv.List[0].Type, func(r ast.Node) bool { // visits the type and its type parameters
					if id, ok := r.(*ast.Ident); ok {
						methods = append(methods, method{name{dir, id.Name}, n.Name.Name, path})
					}
					return true
				})
				return false
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range methods {
		if home, ok := types[m.of]; ok && home != m.path {
			t.Errorf("%s contains method %s of %s, which is declared in %s", m.path, m.name, m.of.of, home)
		}
	}
}
