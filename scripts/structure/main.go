// Command structure prints figures about the structure of Go packages, one line per package:
//
//	go run ./scripts/structure [-order] [-hub TYPE] PACKAGE...
//
// It does not count tests. A use is a pair of files of one package: the first file uses a name that the
// second file declares. In the reading order, callers come before the functions that they call. A use runs
// back if its second file comes before its first file. The command searches for the order with the fewest
// uses that run back, by moving single files. -order prints this order.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/tools/go/packages"
)

func main() {
	order := flag.Bool("order", false, "print the reading order of each package, and its uses that run back")
	hub := flag.String("hub", "TaskHub", "count the struct fields of this type, in other structs of its package")
	flag.Parse()
	if err := run(os.Stdout, flag.Args(), *order, *hub); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, patterns []string, order bool, hub string) error {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedModule,
	}, patterns...)
	if err != nil {
		return err
	}
	var errs error
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			errs = errors.Join(errs, e)
		}
	})
	if errs != nil {
		return errs
	}
	var table, details strings.Builder
	fmt.Fprintf(&table, "files\tlines\tlongest\tuses\tback\tfields of %s\t  package\n", hub)
	for _, p := range loaded {
		f := figuresOf(p, hub)
		fmt.Fprintf(&table, "%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", len(f.lines), f.total(), f.longest(), len(f.uses), len(f.back), f.hubFields, p.PkgPath)
		if order {
			fmt.Fprintf(&details, "%s\n\tin order: %s\n\tback: %s\n", p.PkgPath, strings.Join(f.order, " "), strings.Join(f.back, ", "))
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(w, table.String()); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = io.WriteString(out, details.String())
	return err
}

// figures describes one package.
type figures struct {
	lines     map[string]int // by file
	uses      map[use]bool
	order     []string // of the files
	back      []string // uses that run back
	hubFields int
}

// use means that the file from uses a name that the file to declares.
type use struct{ from, to string }

func (f *figures) total() (n int) {
	for _, lines := range f.lines {
		n += lines
	}
	return n
}

func (f *figures) longest() (n int) {
	for _, lines := range f.lines {
		n = max(n, lines)
	}
	return n
}

func figuresOf(p *packages.Package, hub string) *figures {
	f := &figures{lines: map[string]int{}, uses: map[use]bool{}}
	fileOf := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	for _, file := range p.Syntax {
		f.lines[fileOf(file.Pos())] = p.Fset.File(file.Pos()).LineCount()
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if o := p.TypesInfo.Uses[n]; o != nil && o.Pkg() == p.Types && isDeclaration(o) {
					if u := (use{fileOf(n.Pos()), fileOf(o.Pos())}); u.from != u.to {
						f.uses[u] = true
					}
				}
			case *ast.StructType:
				for _, field := range n.Fields.List {
					if t, ok := p.TypesInfo.TypeOf(field.Type).(*types.Pointer); ok && types.TypeString(t.Elem(), types.RelativeTo(p.Types)) == hub {
						f.hubFields++
					}
				}
			}
			return true
		})
	}
	f.order = readingOrder(f.lines, f.uses)
	for u := range f.uses {
		if slices.Index(f.order, u.to) < slices.Index(f.order, u.from) {
			f.back = append(f.back, strings.TrimSuffix(u.from, ".go")+" to "+strings.TrimSuffix(u.to, ".go"))
		}
	}
	slices.Sort(f.back)
	return f
}

// isDeclaration reports whether o is declared at package level or is a method.
func isDeclaration(o types.Object) bool {
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		return true
	}
	return o.Parent() == o.Pkg().Scope()
}

// readingOrder returns the files in an order with few uses that run back. It starts with the files that use
// most and are used least. Then it moves single files to better places until no move helps.
func readingOrder(lines map[string]int, uses map[use]bool) []string {
	var order []string
	surplus := map[string]int{}
	for file := range lines {
		order = append(order, file)
	}
	for u := range uses {
		surplus[u.from]--
		surplus[u.to]++
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(surplus[a]-surplus[b], cmp.Compare(a, b)) })
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Clone(order) {
			from := slices.Index(order, file)
			if to := bestPlace(order, from, uses); to != from {
				order = slices.Insert(slices.Delete(order, from, from+1), to, file)
				moved = true
			}
		}
	}
	return order
}

// bestPlace returns the place for the file order[from] with the fewest uses that run back. It returns from
// unless another place is better.
func bestPlace(order []string, from int, uses map[use]bool) int {
	file, rest := order[from], slices.Delete(slices.Clone(order), from, from+1)
	back := 0 // with file in the first place, exactly the uses of file run back
	for _, other := range rest {
		back += count(uses[use{other, file}])
	}
	cost := []int{back}
	for _, other := range rest {
		back += count(uses[use{file, other}]) - count(uses[use{other, file}])
		cost = append(cost, back)
	}
	if best := slices.Min(cost); best < cost[from] {
		return slices.Index(cost, best)
	}
	return from
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
