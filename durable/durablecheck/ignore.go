package durablecheck

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// directive starts a comment that says why something is safe on replay.
const directive = "//durablecheck:ignore"

// ignores knows the lines on which findings do not count.
type ignores struct {
	fset  *token.FileSet
	lines map[string]map[int]bool // by file
}

// newIgnores reads the directives of a package and reports those without a
// reason, which change nothing.
func newIgnores(pass *analysis.Pass) *ignores {
	ig := &ignores{fset: pass.Fset, lines: map[string]map[int]bool{}}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				if isDirective(c.Text) && reason(c.Text) == "" {
					pass.Report(analysis.Diagnostic{
						Pos: c.Pos(), End: c.End(), Category: string(ruleIgnore),
						Message: directive + " without a reason ignores nothing; write after it why this is safe on replay",
					})
				}
			}
		}
		ig.ofLines(file)
		ig.ofFunctions(file)
	}
	return ig
}

// ofLines reads the directives that stand on the line they mean, or on a line of
// their own above it.
func (ig *ignores) ofLines(file *ast.File) {
	var own map[int]bool // the lines with code on them
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

// ofFunctions reads the directives in the comments of functions.
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

// at reports whether what stands at pos does not count.
func (ig *ignores) at(pos token.Pos) bool {
	p := ig.fset.Position(pos)
	return ig.lines[p.Filename][p.Line]
}

func isDirective(text string) bool {
	rest, ok := strings.CutPrefix(text, directive)
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// reason returns what follows the directive. What a test expects of the line
// is no reason.
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

// linesWithCode returns the lines of file on which some node starts or ends.
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
