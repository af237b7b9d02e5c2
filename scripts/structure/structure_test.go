package main

import (
	"slices"
	"strings"
	"testing"
)

func TestReadingOrder_HasTheFewestUsesThatRunBack(t *testing.T) {
	for _, test := range []struct{ uses, want string }{
		{"", "a b c d"},
		{"d>c c>b b>a", "d c b a"},
		{"a>b b>c c>d d>a", "a b c d"},
		{"a>c b>c c>d d>b", "a c d b"},
	} {
		uses := map[use]bool{}
		for u := range strings.FieldsSeq(test.uses) {
			from, to, _ := strings.Cut(u, ">")
			uses[use{from, to}] = true
		}
		got := readingOrder(map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, uses)
		if back(got, uses) != back(strings.Fields(test.want), uses) {
			t.Errorf("order for the uses %s: %s, want %s or an equivalent order", test.uses, got, test.want)
		}
	}
}

func back(order []string, uses map[use]bool) (n int) {
	for u := range uses {
		n += count(slices.Index(order, u.to) < slices.Index(order, u.from))
	}
	return n
}

func TestFiguresOf_CountThisPackage(t *testing.T) {
	var out strings.Builder
	if err := run(&out, []string{"."}, true, "figures"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "scripts/structure") || !strings.Contains(got, "in order: main.go") {
		t.Errorf("unexpected output:\n%s", got)
	}
}
