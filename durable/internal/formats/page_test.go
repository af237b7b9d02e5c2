package formats_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
)

var rewrite = flag.Bool("rewrite", false, "write the table of formats into the documentation")

// durableFolder is the folder of package durable.
var durableFolder = filepath.Join("..", "..")

// A format is a kind of data with a version, which is a constant of the source.
type format struct {
	data, file, constant string
	older                bool // older versions are read, too
}

var formats = []format{
	{"a local file and its journal", "embedded/internal/hubfile/file.go", "FormatVersion", true},
	{"a container of partition logs", "azurestorage/partitionlog/identity.go", "formatVersion", false},
	{"the sorted files of a partition log", "azurestorage/partitionlog/internal/runs/manifest.go", "FormatVersion", false},
	{"records with events, in a local file or a partition log", "history/fields.go", "RecordVersion", true},
	{"records of instances, in both", "internal/partition/coder.go", "rowVersion", true},
	{"other records, in both", "internal/partition/coder.go", "recordVersion", true},
}

func TestPage_NamesTheFormatsThatThisVersionReads(t *testing.T) {
	t.Parallel()
	table := "| Data | Writes version | Reads versions |\n|---|--:|--:|\n"
	for _, f := range formats {
		n := constant(t, f)
		reads := strconv.Itoa(n)
		if f.older && n > 1 {
			reads = "1 to " + reads
		}
		table += fmt.Sprintf("| %s | %d | %s |\n", f.data, n, reads)
	}
	versions, err := filepath.Glob(filepath.Join("testdata", "v*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, version := range versions {
		versions[i] = filepath.Base(version)
	}
	table += "\nTested with the hubs and histories of: " + strings.Join(versions, ", ") + ".\n"
	pagetable.Check(t, filepath.Join(durableFolder, "docs", "change-upgrade.md"), *rewrite, map[string]string{"formats": table})
}

// constant returns the value of a format's constant.
func constant(t *testing.T, f format) int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(durableFolder, filepath.FromSlash(f.file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		declared, ok := d.(*ast.GenDecl)
		if !ok || declared.Tok != token.CONST {
			continue
		}
		for _, s := range declared.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || v.Names[0].Name != f.constant || len(v.Values) != 1 {
				continue
			}
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				if n, err := strconv.Atoi(lit.Value); err == nil {
					return n
				}
			}
		}
	}
	t.Fatalf("%s has no number %s", f.file, f.constant)
	return 0
}
