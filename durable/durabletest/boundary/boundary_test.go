package boundary

import (
	"fmt"
	"testing"
)

// recorder records errors.
type recorder []string

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestCheck_DistinguishesEveryComparison(t *testing.T) {
	t.Parallel()
	comparisons := []func(n int) bool{
		func(n int) bool { return n < 0 }, func(n int) bool { return n <= 0 }, func(n int) bool { return n == 0 },
		func(n int) bool { return n != 0 }, func(n int) bool { return n >= 0 }, func(n int) bool { return n > 0 },
	}
	for i, wanted := range comparisons {
		for j, decide := range comparisons {
			var r recorder
			Check(&r, "rule", decide, wanted(-1), wanted(0), wanted(1))
			if (len(r) == 0) != (i == j) {
				t.Errorf("comparison %d checked as %d: %q", j, i, r)
			}
		}
	}
	var r recorder
	if Check(&r, "rule", func(int) bool { return true }, true, true, true); len(r) != 1 {
		t.Errorf("a rule without a limit: %q, want an error", r)
	}
}
