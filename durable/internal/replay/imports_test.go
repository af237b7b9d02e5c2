package replay_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/durablefunctions-go/durablefunctions/"

// Replay is a function of its arguments. It and the packages below it use no clock, no lock, no
// logger, no network and no goroutines except coroutines.
func TestImports_ReplayUsesNoClockLockLoggerOrNetwork(t *testing.T) {
	t.Parallel()
	forbidden := []string{"context", "log", "log/slog", "net", "os", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand"}
	below := []string{"durable/history", "durable/internal/coro", "durable/internal/entity", "durable/internal/eventjson"}
	for _, dir := range []string{".", "../coro", "../entity", "../eventjson", "../../history"} {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pkg.Imports {
			first, _, _ := strings.Cut(path, "/")
			switch {
			case slices.Contains(forbidden, path), strings.HasPrefix(path, "net/"):
				t.Errorf("%s imports %s", dir, path)
			case strings.HasPrefix(path, module):
				if rest := strings.TrimPrefix(path, module); !slices.Contains(below, rest) {
					t.Errorf("%s imports %s", dir, path)
				}
			case strings.Contains(first, "."):
				t.Errorf("%s imports %s, which is not of the standard library", dir, path)
			}
		}
		for _, file := range pkg.GoFiles {
			checkSource(t, filepath.Join(dir, file))
		}
	}
}

// checkSource reports uses of the clock, select statements, and go statements outside of
// coro.go.
func checkSource(t *testing.T, path string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" &&
				slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
				t.Errorf("%s uses time.%s", fset.Position(n.Pos()), n.Sel.Name)
			}
		case *ast.GoStmt:
			if filepath.Base(path) != "coro.go" {
				t.Errorf("%s starts a goroutine", fset.Position(n.Pos()))
			}
		case *ast.SelectStmt:
			t.Errorf("%s selects", fset.Position(n.Pos()))
		}
		return true
	})
}
