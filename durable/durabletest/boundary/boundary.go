// Package boundary is for tests of comparisons with a limit. It checks a rule just below, at and just
// above its limit, so that a test fails if the rule compares by < instead of <=.
package boundary

// A Reporter reports the errors of a test, as [testing.T] does.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check checks the results of a rule for values that are one unit below its limit, at it, and one unit
// above. decide applies the rule to the value that is offset units from the limit. The test chooses the
// smallest unit that the rule distinguishes. At least two results must differ.
func Check[R comparable](t Reporter, rule string, decide func(offset int) R, below, at, above R) {
	t.Helper()
	if below == at && at == above {
		t.Errorf("%s: all wanted results are %v, so there is no limit", rule, at)
	}
	for i, want := range []R{below, at, above} {
		if got := decide(i - 1); got != want {
			t.Errorf("%s: %v %s its limit, want %v", rule, got, []string{"just below", "at", "just above"}[i], want)
		}
	}
}
