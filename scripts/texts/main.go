// Command texts lists the texts that operators see: errors, log messages and panics of all programs and
// packages, without tests. Read the list after a change of many texts.
//
//	go run ./scripts/texts
//
// Each line has the kind of the text (error, panic, or the level of a log message), its place and the text.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "texts:", err)
		os.Exit(1)
	}
}

func run() error {
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	for file := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") || strings.Contains(file, "test/") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		texts, err := extract(file, source)
		if err != nil {
			return err
		}
		for _, t := range texts {
			fmt.Printf("%-5s  %s:%d  %s\n", t.kind, file, t.line, t.text)
		}
	}
	return nil
}

type text struct {
	kind string
	line int
	text string
}

// extract returns the texts in a file, in order.
func extract(file string, source []byte) (texts []text, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		kind := kindOf(call.Fun)
		if kind == "" {
			return true
		}
		for _, arg := range call.Args {
			if s, ok := constant(arg); ok {
				texts = append(texts, text{kind, set.Position(call.Pos()).Line, s})
				break
			}
		}
		return true
	})
	return texts, nil
}

// kindOf returns the kind of the text that a call of f takes; "" if it takes none.
func kindOf(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		if f.Name == "panic" {
			return "panic"
		}
	case *ast.SelectorExpr:
		of, _ := f.X.(*ast.Ident)
		switch name := f.Sel.Name; {
		case of != nil && of.Name == "errors" && name == "New", of != nil && of.Name == "fmt" && name == "Errorf":
			return "error"
		case name == "Log", name == "LogAttrs":
			return "log"
		default:
			name = strings.TrimSuffix(name, "Context")
			if name == "Debug" || name == "Info" || name == "Warn" || name == "Error" {
				return strings.ToLower(name)
			}
		}
	}
	return ""
}

// constant returns the value of a string literal or of a sum of them. Other operands of a sum become "…".
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.BinaryExpr:
		x, isX := constant(e.X)
		y, isY := constant(e.Y)
		if !isX {
			x = "…"
		}
		if !isY {
			y = "…"
		}
		return x + y, isX || isY
	case *ast.CallExpr: // such as fmt.Sprintf
		if len(e.Args) > 0 {
			return constant(e.Args[0])
		}
	}
	return "", false
}
