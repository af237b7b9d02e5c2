package durable_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/docblock"
)

// docsPrograms are the programs in commands of pages, except scripts and the app. The
// value is the mark that their block needs.
var docsPrograms = map[string]string{
	"go": "", "git": "", "cd": "", "curl": "", "func": "", "export": "", "source": "", "mkdir": "", "cp": "", "kill": "", "jq": "", "docker": "", "touch": "",
	"az": "azure", "kubectl": "cluster", "helm": "cluster",
}

// appArguments are the valid first arguments of an app, except hub.
var appArguments = []string{"-write-functions", "-schema", "-openapi", "-init", "package", "deploy", "--help", "--version"}

// docsInline matches a command of the app, or a script, in the text of a page.
var docsInline = regexp.MustCompile("`((?:bin/app |scripts/|hub [a-z])[^`\n]*)`")

// Commands in pages must use existing scripts, verbs and flags.
func TestREADME_CommandsOfPagesExist(t *testing.T) {
	t.Parallel()
	verbs := hubVerbs(t)
	blocks, prose := docsBlocks(t)
	checked, marked := 0, 0
	check := func(text string, b docblock.Block) {
		commands, err := shellWords(text)
		if err != nil {
			t.Errorf("%s: %s: %v", b.At(), text, err)
		}
		for _, words := range commands {
			checked++
			if err := checkCommand(words, b, verbs); err != nil {
				t.Errorf("%s: %s: %v", b.At(), text, err)
			}
		}
	}
	for _, b := range blocks {
		commands := b.Commands()
		if len(commands) > 0 && len(b.Marks) > 0 {
			marked++
		}
		first, _, _ := strings.Cut(strings.TrimSpace(b.Text), " ")
		if _, known := docsPrograms[first]; b.Language == "" && len(commands) == 0 && (known || strings.HasPrefix(first, "scripts/") || first == "bin/app") {
			t.Errorf("%s: the block has commands; its fence needs the language sh", b.At())
		}
		for _, c := range commands {
			if !b.Hidden {
				check(c.Text, b)
			}
		}
	}
	for page, lines := range prose {
		for _, m := range docsInline.FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
			text := m[1]
			if strings.HasPrefix(text, "hub ") {
				text = "bin/app " + text
			}
			check(text, docblock.Block{Page: page, Marks: docblock.Marks})
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
func checkCommand(words []string, b docblock.Block, verbs map[string][]string) error {
	assignment := regexp.MustCompile(`^\w+=`)
	for len(words) > 0 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	program, args := words[0], words[1:]
	for _, arg := range args {
		if strings.HasPrefix(arg, strings.TrimSuffix(module, "/")) && strings.Contains(arg, "@") && !b.Has("module") {
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
	if mark != "" && !b.Has(mark) {
		return fmt.Errorf("the block needs the mark %s", mark)
	}
	return nil
}

// checkHubCommand checks the arguments after hub.
func checkHubCommand(args []string, verbs map[string][]string) error {
	if len(args) == 0 || len(args) == 1 && slices.Contains([]string{"--help", "--version", "VERB"}, args[0]) {
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
