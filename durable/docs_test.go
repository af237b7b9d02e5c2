package durable_test

import (
	"encoding/json"
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
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// docsFolder contains the pages of the documentation and their index, README.md.
const docsFolder = "docs"

// maxPageLines is the maximum length of a page, not counting its generated tables.
const maxPageLines = 120

// docsBlock is a fenced code block of a page.
type docsBlock struct {
	page     string // file name
	line     int    // line number of the first line of text
	language string // may be empty
	marks    []string
	text     string
	hidden   bool // in a comment that starts with "<!-- go"
}

func (b docsBlock) at() string           { return fmt.Sprintf("%s:%d", b.page, b.line) }
func (b docsBlock) has(mark string) bool { return slices.Contains(b.marks, mark) }

// docsMarks are the words that may follow the language of a fence. They name
// requirements of the block: an Azure account, a Kubernetes cluster, a published Go
// module.
var docsMarks = []string{"azure", "cluster", "module"}

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

// docsBlocks returns the code blocks of all pages and the lines outside them.
func docsBlocks(t *testing.T) (blocks []docsBlock, prose map[string][]string) {
	t.Helper()
	pages, prose := docsPages(t), map[string][]string{}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		var open *docsBlock
		end := ""
		for i, line := range pages[page] {
			switch {
			case open != nil && line == end:
				blocks = append(blocks, *open)
				open = nil
			case open != nil:
				open.text += line + "\n"
			case strings.HasPrefix(line, "```"):
				open, end = &docsBlock{page: page, line: i + 2}, "```"
				if words := strings.Fields(line[3:]); len(words) > 0 {
					open.language, open.marks = words[0], words[1:]
				}
			case line == "<!-- go":
				open, end = &docsBlock{page: page, line: i + 2, language: "go", hidden: true}, "-->"
			default:
				prose[page] = append(prose[page], line)
			}
		}
		if open != nil {
			t.Errorf("%s: the block is not closed", open.at())
		}
	}
	return blocks, prose
}

func TestREADME_PagesAreShortAndMarksAreKnown(t *testing.T) {
	t.Parallel()
	table := regexp.MustCompile(`(?s)<!-- (\w[\w ]*) -->\n.*?<!-- end of \w[\w ]* -->\n`)
	for page, lines := range docsPages(t) {
		rest := table.ReplaceAllString(strings.Join(lines, "\n")+"\n", "")
		if n := strings.Count(rest, "\n"); n > maxPageLines {
			t.Errorf("%s has %d lines, want at most %d", page, n, maxPageLines)
		}
		if !strings.HasPrefix(lines[0], "# ") {
			t.Errorf("%s does not start with a title", page)
		}
	}
	blocks, _ := docsBlocks(t)
	for _, b := range blocks {
		for _, mark := range b.marks {
			if !slices.Contains(docsMarks, mark) {
				t.Errorf("%s: mark %q; want some of %s", b.at(), mark, strings.Join(docsMarks, ", "))
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
		if b.language != "go" {
			continue
		}
		name := strings.ReplaceAll(strings.TrimSuffix(b.page, ".md"), "-", "")
		folder, text := filepath.Join(root, name), b.text
		whole := strings.HasPrefix(text, "package ") || strings.Contains(text, "\npackage ")
		if whole {
			folder = filepath.Join(root, fmt.Sprint(name, b.line))
		} else {
			text = "package " + name + "\n" + text
		}
		file, err := parser.ParseFile(token.NewFileSet(), b.page, text, 0)
		if err != nil {
			t.Errorf("%s: %v", b.at(), err)
			continue
		}
		if formatted, err := format.Source([]byte(b.text)); err != nil || string(formatted) != b.text {
			t.Errorf("%s: the block is not formatted with gofmt: %v", b.at(), err)
		}
		if b.has("module") {
			parsed++ // uses a module that this module does not require
			continue
		}
		if !whole {
			text = "package " + name + importsOf(file) + fmt.Sprintf("\n//line %s:%d\n", b.page, b.line) + b.text
		}
		if !b.hidden {
			compiled++
		}
		write(t, filepath.Join(folder, fmt.Sprintf("block%d.go", b.line)), text)
	}
	app, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	this := strings.TrimSuffix(module, "/")
	write(t, filepath.Join(root, "go.mod"), strings.Replace(string(app), "module "+this+"\n", "module pages\n", 1)+
		fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", this, this, strconv.Quote(checkout)))
	write(t, filepath.Join(root, "go.sum"), string(sums))
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Dir = root
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet of the Go blocks: %v\n%s", err, out)
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

// docsPrograms are the programs in commands of pages, except scripts and the app. The
// value is the mark that their block needs.
var docsPrograms = map[string]string{
	"go": "", "git": "", "cd": "", "curl": "", "func": "", "export": "", "source": "", "mkdir": "", "cp": "", "kill": "", "jq": "", "docker": "", "touch": "",
	"az": "azure", "kubectl": "cluster", "helm": "cluster",
}

// appArguments are the valid first arguments of an app, except hub.
var appArguments = []string{"-write-functions", "-schema", "-openapi", "-init", "package", "deploy", "--help", "--version"}

// Commands in pages must use existing scripts, verbs and flags. In sh blocks each line
// is a command; in other blocks each line after "$ ".
func TestREADME_CommandsOfPagesExist(t *testing.T) {
	t.Parallel()
	verbs := hubVerbs(t)
	blocks, _ := docsBlocks(t)
	checked, marked := 0, 0
	for _, b := range blocks {
		if b.language != "sh" && b.language != "" && b.language != "console" {
			continue
		}
		if len(b.marks) > 0 {
			marked++
		}
		for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
			line, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if line == "" || strings.HasPrefix(line, "#") || b.language != "sh" && !prompt {
				continue
			}
			commands, err := shellWords(line)
			if err != nil {
				t.Errorf("%s: %s: %v", b.at(), line, err)
			}
			for _, words := range commands {
				checked++
				if err := checkCommand(words, b, verbs); err != nil {
					t.Errorf("%s: %s: %v", b.at(), line, err)
				}
			}
		}
	}
	t.Logf("commands: %d checked; %d blocks are marked", checked, marked)
}

// shellWords splits a line into commands and each command into words.
func shellWords(line string) (commands [][]string, err error) {
	var words []string
	word, quote, open := "", rune(0), false
	endWord := func() {
		if open {
			words = append(words, word)
		}
		word, open = "", false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == '#' && !open && (i == 0 || line[i-1] == ' '):
			endCommand()
			return commands, nil
		case r == ' ':
			endWord()
		case r == '|' || r == ';' || r == '&':
			endCommand()
		default:
			word, open = word+string(r), true
		}
	}
	endCommand()
	if quote != 0 {
		return nil, fmt.Errorf("no end of %c", quote)
	}
	return commands, nil
}

// checkCommand returns an error for a command that is not valid in a page.
func checkCommand(words []string, b docsBlock, verbs map[string][]string) error {
	assignment := regexp.MustCompile(`^\w+=`)
	for len(words) > 0 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	program, args := words[0], words[1:]
	for _, arg := range args {
		if strings.HasPrefix(arg, strings.TrimSuffix(module, "/")) && strings.Contains(arg, "@") && !b.has("module") {
			return fmt.Errorf("the block needs the mark module")
		}
	}
	switch {
	case strings.HasPrefix(program, "scripts/"):
		_, err := os.Stat(filepath.Join("..", program))
		return err
	case (program == "bin/app" || program == "durable") && len(args) > 0 && args[0] == "hub":
		return checkHubCommand(args[1:], verbs)
	case program == "bin/app":
		if len(args) > 0 && !slices.Contains(appArguments, args[0]) {
			return fmt.Errorf("the app has no argument %s", args[0])
		}
		return nil
	}
	mark, known := docsPrograms[program]
	if !known {
		return fmt.Errorf("unknown program %s", program)
	}
	if mark != "" && !b.has(mark) {
		return fmt.Errorf("the block needs the mark %s", mark)
	}
	return nil
}

// checkHubCommand checks the arguments after hub.
func checkHubCommand(args []string, verbs map[string][]string) error {
	if len(args) == 1 && args[0] == "--help" {
		return nil
	}
	for n := min(2, len(args)); n > 0; n-- {
		flags, ok := verbs[strings.Join(args[:n], " ")]
		if !ok {
			continue
		}
		for _, arg := range args[n:] {
			name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if strings.HasPrefix(arg, "--") && name != "help" && !slices.Contains(flags, name) {
				return fmt.Errorf("hub %s has no flag --%s", strings.Join(args[:n], " "), name)
			}
		}
		return nil
	}
	return fmt.Errorf("hub has no verb %s", strings.Join(args, " "))
}

// hubVerbs parses the verbs of the hub tool and their flags from its source.
func hubVerbs(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../handler/internal/hubcli/verbs.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	helpers, control := map[string]*ast.FuncDecl{}, (*ast.FuncDecl)(nil)
	var all *ast.CompositeLit
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				helpers[d.Name.Name] = d
			} else if d.Name.Name == "control" {
				control = d
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].Name == "verbs" {
					all, _ = v.Values[0].(*ast.CompositeLit)
				}
			}
		}
	}
	if all == nil || control == nil {
		t.Fatal("verbs.go has no verbs")
	}
	text := func(e ast.Expr) string {
		lit, ok := e.(*ast.BasicLit)
		if !ok {
			return ""
		}
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	var flags func(n ast.Node) []string
	flags = func(n ast.Node) (names []string) {
		ast.Inspect(n, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if on, ok := sel.X.(*ast.SelectorExpr); ok && on.Sel.Name == "set" {
				for _, arg := range call.Args[:min(2, len(call.Args))] { // Var(&f.x, "name", …), Func("name", …)
					if name := text(arg); name != "" {
						names = append(names, name)
						break
					}
				}
			} else if helper := helpers[sel.Sel.Name]; helper != nil {
				names = append(names, flags(helper.Body)...)
			}
			return true
		})
		return names
	}
	verbs := map[string][]string{}
	for _, e := range all.Elts {
		switch e := e.(type) {
		case *ast.CallExpr:
			verbs[text(e.Args[0])] = append(flags(control.Body), "output")
		case *ast.CompositeLit:
			for _, member := range e.Elts {
				if kv := member.(*ast.KeyValueExpr); kv.Key.(*ast.Ident).Name == "name" {
					verbs[text(kv.Value)] = append(flags(e), "output")
				}
			}
		}
	}
	if len(verbs) < 20 || !slices.Contains(verbs["rewind"], "dry-run") || !slices.Contains(verbs["list"], "created-after") {
		t.Fatalf("read %v from verbs.go", verbs)
	}
	return verbs
}

// JSON in pages must be valid. Parts of host.json must use existing settings, with
// values that the schema allows.
func TestREADME_SettingsOfPagesExist(t *testing.T) {
	t.Parallel()
	var schema hostSchema
	text, err := os.ReadFile("../handler/host.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	settings := schema.Properties["extensions"].Properties["durableTask"]
	blocks, _ := docsBlocks(t)
	checked := 0
	for _, b := range blocks {
		if b.language != "json" {
			continue
		}
		var value any
		if json.Unmarshal([]byte(b.text), &value) != nil {
			if err := json.Unmarshal([]byte("{"+b.text+"}"), &value); err != nil { // members of an object
				t.Errorf("%s: %v", b.at(), err)
				continue
			}
		}
		object, _ := value.(map[string]any)
		for name := range object {
			of := hostSchema{}
			switch {
			case object["extensions"] != nil && (name == "extensions" || name == "functionTimeout"):
				of = schema
			case settings.Properties[name].known():
				of = settings
			default:
				continue
			}
			checked++
			if err := of.Properties[name].check(object[name], name); err != nil {
				t.Errorf("%s: %v", b.at(), err)
			}
		}
	}
	t.Logf("settings in JSON blocks: %d checked", checked)
}

// hostSchema is the JSON schema of host.json or of a value in it.
type hostSchema struct {
	Type       any                   `json:"type"`
	Properties map[string]hostSchema `json:"properties"`
	Enum       []any                 `json:"enum"`
	Minimum    *float64              `json:"minimum"`
	Maximum    *float64              `json:"maximum"`
	Pattern    string                `json:"pattern"`
}

func (s hostSchema) known() bool { return s.Type != nil }

func (s hostSchema) check(value any, path string) error {
	if members, ok := value.(map[string]any); ok && s.Properties != nil {
		for name, member := range members {
			of := s.Properties[name]
			if !of.known() {
				return fmt.Errorf("%s has no setting %s", path, name)
			}
			if err := of.check(member, path+"."+name); err != nil {
				return err
			}
		}
		return nil
	}
	number, isNumber := value.(float64)
	text, isText := value.(string)
	switch {
	case s.Type == "object", s.Type == "integer" && !isNumber, s.Type == "boolean" && value != true && value != false,
		s.Enum != nil && !slices.Contains(s.Enum, value),
		s.Minimum != nil && number < *s.Minimum, s.Maximum != nil && number > *s.Maximum,
		s.Pattern != "" && isText && !regexp.MustCompile(s.Pattern).MatchString(text):
		return fmt.Errorf("%s cannot be %v", path, value)
	}
	return nil
}
