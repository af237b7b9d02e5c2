package durablecheck

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// directive is the start of a comment that explains why code is safe on replay.
const directive = "//durablecheck:ignore"

// ignores contains the lines whose findings are ignored.
type ignores struct {
	fset  *token.FileSet
	lines map[string]map[int]bool // by file name
}

// newIgnores reads the directives of a package. It reports directives without a reason, which have no
// effect.
func newIgnores(pass *analysis.Pass) *ignores {
	ig := &ignores{fset: pass.Fset, lines: map[string]map[int]bool{}}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				if isDirective(c.Text) && reason(c.Text) == "" {
					pass.Report(analysis.Diagnostic{
						Pos: c.Pos(), End: c.End(), Category: string(ruleIgnore),
						Message: directive + " without a reason has no effect; add the reason why the code is safe on replay",
					})
				}
			}
		}
		ig.ofLines(file)
		ig.ofFunctions(file)
	}
	return ig
}

// ofLines reads the directives at the end of a line, or alone on the line above.
func (ig *ignores) ofLines(file *ast.File) {
	var own map[int]bool // lines with code
	for _, group := range file.Comments {
		for _, c := range group.List {
			if !isDirective(c.Text) || reason(c.Text) == "" {
				continue
			}
			if own == nil {
				own = linesWithCode(ig.fset, file)
			}
			at := ig.fset.Position(c.Pos())
			ig.add(at.Filename, at.Line)
			if !own[at.Line] {
				ig.add(at.Filename, at.Line+1)
			}
		}
	}
}

// ofFunctions reads the directives in doc comments of functions.
func (ig *ignores) ofFunctions(file *ast.File) {
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && hasDirective(fn.Doc) {
			first, last := ig.fset.Position(fn.Pos()), ig.fset.Position(fn.End())
			for line := first.Line; line <= last.Line; line++ {
				ig.add(first.Filename, line)
			}
		}
	}
}

func (ig *ignores) add(file string, line int) {
	if ig.lines[file] == nil {
		ig.lines[file] = map[int]bool{}
	}
	ig.lines[file][line] = true
}

// at reports whether findings at pos are ignored.
func (ig *ignores) at(pos token.Pos) bool {
	p := ig.fset.Position(pos)
	return ig.lines[p.Filename][p.Line]
}

func isDirective(text string) bool {
	rest, ok := strings.CutPrefix(text, directive)
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// reason returns the text after the directive. It excludes a want comment of a test.
func reason(text string) string {
	why := strings.TrimPrefix(text, directive)
	why, _, _ = strings.Cut(why, "//")
	return strings.TrimSpace(why)
}

func hasDirective(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if isDirective(c.Text) && reason(c.Text) != "" {
			return true
		}
	}
	return false
}

// linesWithCode returns the lines of file on which a node starts or ends.
func linesWithCode(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.File:
			return true
		case *ast.Comment, *ast.CommentGroup:
			return false
		}
		lines[fset.Position(n.Pos()).Line] = true
		lines[fset.Position(n.End()-1).Line] = true
		return true
	})
	return lines
}
