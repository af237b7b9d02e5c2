package durabletest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
)

// A recorder is a TB that records its failure and its log.
type recorder struct {
	fatal    string
	log      []string
	cleanups []func()
}

var _ durabletest.TB = (*recorder)(nil)

func (r *recorder) Helper() {}
func (r *recorder) Logf(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record runs a test and its cleanups, as package testing does.
func record(test func(t durabletest.TB)) *recorder {
	r := new(recorder)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		test(r)
	}()
	<-done
	return r
}

// fails returns the failure message of a test. It fails t if the test passes.
func fails(t *testing.T, test func(t durabletest.TB)) string {
	t.Helper()
	r := record(test)
	if r.fatal == "" {
		t.Fatal("the test did not fail")
	}
	return r.fatal
}

// contains reports each of the parts that text does not contain.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("got:\n%s\nwant a text with %q", text, p)
		}
	}
}

// firstLines returns the first n lines of a text.
func firstLines(text string, n int) string {
	return strings.Join(strings.SplitN(text, "\n", n+1)[:n], "\n")
}
