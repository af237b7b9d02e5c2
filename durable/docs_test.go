package durable_test

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/docblock"
)

// docsFolder contains the pages of the documentation and their index, README.md.
const docsFolder = "docs"

// maxPageLines is the maximum length of a page, not counting its generated tables and
// the code that readers do not see.
const maxPageLines = 120

// maxReadmeLines is the maximum length of the top-level README.
const maxReadmeLines = 150

// docsPages returns the lines of each page.
func docsPages(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(docsFolder, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages in %s: %v", docsFolder, err)
	}
	pages := map[string][]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(file)] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	return pages
}

// docsOthers are documents outside docsFolder whose code blocks are checked, too.
var docsOthers = []string{"../README.md", "../.github/CONTRIBUTING.md"}

// docsBlocks returns the code blocks of all documents, and the lines outside them of each page.
func docsBlocks(t *testing.T) (blocks []docblock.Block, prose map[string][]string) {
	t.Helper()
	prose = map[string][]string{}
	read := func(path string) []string {
		found, lines, err := docblock.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, found...)
		return lines
	}
	for _, page := range slices.Sorted(maps.Keys(docsPages(t))) {
		prose[page] = read(filepath.Join(docsFolder, page))
	}
	for _, path := range docsOthers {
		read(path)
	}
	return blocks, prose
}

func TestREADME_PagesAreShortAndMarksAreKnown(t *testing.T) {
	t.Parallel()
	table := regexp.MustCompile(`(?s)<!-- (\w[\w ]*) -->\n.*?<!-- end of \w[\w ]* -->\n`)
	hidden := regexp.MustCompile(`(?ms)^ *<!-- (go|sh)\b[^>]*?$.*?^ *-->\n`)
	for page, lines := range docsPages(t) {
		rest := hidden.ReplaceAllString(table.ReplaceAllString(strings.Join(lines, "\n")+"\n", ""), "")
		if n := strings.Count(rest, "\n"); n > maxPageLines {
			t.Errorf("%s has %d lines, want at most %d", page, n, maxPageLines)
		}
		if !strings.HasPrefix(lines[0], "# ") {
			t.Errorf("%s does not start with a title", page)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(readme), "\n"); n > maxReadmeLines {
		t.Errorf("the top-level README has %d lines, want at most %d", n, maxReadmeLines)
	}
	blocks, _ := docsBlocks(t)
	for _, b := range blocks {
		if !slices.Contains([]string{"", "console", "csharp", "go", "json", "sh", "text", "yaml"}, b.Language) {
			t.Errorf("%s: unknown language %q", b.At(), b.Language)
		}
		for _, mark := range b.Marks {
			if !slices.Contains(docblock.Marks, mark) {
				t.Errorf("%s: mark %q; want some of %s", b.At(), mark, strings.Join(docblock.Marks, ", "))
			}
		}
	}
}

// Links in pages must lead to existing files and headings. The index must link every
// page, and the top-level README must link the index.
func TestREADME_LinksOfPagesResolve(t *testing.T) {
	t.Parallel()
	link, code := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("`[^`\n]*`")
	_, prose := docsBlocks(t)
	indexed := map[string]bool{"README.md": true}
	for page, lines := range prose {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(strings.Join(lines, "\n"), ""), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := filepath.Join(docsFolder, filepath.FromSlash(target))
			if target == "" {
				path = filepath.Join(docsFolder, page)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links %s, which does not exist", page, m[1])
			} else if heading != "" && !slices.Contains(headings(t, path), heading) {
				t.Errorf("%s links %s, which has no such heading", page, m[1])
			}
			if page == "README.md" {
				indexed[target] = true
			}
		}
	}
	for page := range prose {
		if !indexed[page] {
			t.Errorf("%s/README.md does not link %s", docsFolder, page)
		}
	}
	top, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(top), "](durable/docs/README.md)") {
		t.Error("the top-level README does not link the index of the pages")
	}
}

// headings returns the anchors that GitHub generates for the headings of a document.
func headings(t *testing.T, path string) (anchors []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	code := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		title := strings.TrimLeft(line, "#")
		if code || title == line {
			continue
		}
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return anchors
}

// docsImports are the packages that blocks may use without an import.
var docsImports = []string{
	"bytes", "cmp", "context", "database/sql", "encoding/json", "errors", "fmt", "io", "log/slog", "net/http", "os", "path/filepath", "slices", "strconv", "strings",
	"testing", "time", "github.com/labstack/echo/v4", module + "durable", module + "durable/azurestorage", module + "durable/durabletest",
	module + "durable/embedded", module + "handler", module + "handler/prometheus",
}

// Every Go block must compile and pass go vet in its own module, like an app. The
// blocks of a page form one package. A block with a package clause is a separate
// program.
func TestREADME_GoBlocksOfPagesCompile(t *testing.T) {
	t.Parallel()
	blocks, _ := docsBlocks(t)
	root := t.TempDir()
	compiled, parsed := 0, 0
	for _, b := range blocks {
		if b.Language != "go" {
			continue
		}
		name := strings.ReplaceAll(strings.TrimSuffix(b.Page, ".md"), "-", "")
		folder, text := filepath.Join(root, name), b.Text
		whole := strings.HasPrefix(text, "package ") || strings.Contains(text, "\npackage ")
		if whole {
			folder = filepath.Join(root, fmt.Sprint(name, b.Line))
		} else {
			text = "package " + name + "\n" + text
		}
		file, err := parser.ParseFile(token.NewFileSet(), b.Page, text, 0)
		if err != nil {
			t.Errorf("%s: %v", b.At(), err)
			continue
		}
		if formatted, err := format.Source([]byte(b.Text)); err != nil || string(formatted) != b.Text {
			t.Errorf("%s: the block is not formatted with gofmt: %v", b.At(), err)
		}
		if b.Has("module") {
			parsed++ // uses a module that this module does not require
			continue
		}
		if !whole {
			text = "package " + name + importsOf(file) + fmt.Sprintf("\n//line %s:%d\n", b.Page, b.Line) + b.Text
		}
		if !b.Hidden {
			compiled++
		}
		write(t, filepath.Join(folder, fmt.Sprintf("block%d.go", b.Line)), text)
	}
	app, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "go.mod"), strings.Replace(string(app), "module "+strings.TrimSuffix(module, "/")+"\n", "module pages\n", 1))
	// In a workspace the checkout's packages are those that the tests have compiled, also with -trimpath.
	for _, args := range [][]string{{"work", "init", ".", checkout}, {"vet", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
	t.Logf("Go blocks: %d compiled, %d parsed only", compiled, parsed)
}

// importsOf returns import clauses for the packages that a file without imports uses.
func importsOf(file *ast.File) (clauses string) {
	used := map[string]bool{}
	for _, id := range file.Unresolved {
		used[id.Name] = true
	}
	for _, path := range docsImports {
		name := filepath.Base(strings.TrimSuffix(path, "/v4"))
		if used[name] {
			clauses += fmt.Sprintf("; import %q", path)
		}
	}
	return clauses
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
