// Package testshare divides the cases of tests among parallel processes. A test binary that
// imports it has the flag -sim.share: the value 1/2 selects the first of two shares.
package testshare

import (
	"flag"
	"fmt"
	"hash/fnv"
	"testing"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

var current = Share{1, 1}

func init() {
	flag.Var(&current, "sim.share", "run one `share` of all seeds and crash points, as in 1/2; the default is all")
}

// Has reports whether this process runs case i of a test. With two shares, each has every
// second case. The share of case 0 depends on the test's name, so that tests with one case are
// distributed.
func Has(t testing.TB, i int) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return current.Has(int(h.Sum32()%uint32(current.of)) + i)
}

// SkipOtherShares skips a test with one case if it belongs to another share.
func SkipOtherShares(t testing.TB) {
	t.Helper()
	if !Has(t, 0) {
		t.Skipf("runs in another part: not in share %v", current)
	}
}

// SkipInShortRuns skips a test under -short.
func SkipInShortRuns(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to scripts/test --full")
	}
}

// SkipInShortRaceRuns skips a test under -short with the race detector. Without it, -short runs the
// test.
func SkipInShortRaceRuns(t testing.TB) {
	t.Helper()
	if testing.Short() && underRace {
		t.Skip("runs in another part: without the race detector")
	}
}

// Share is one of several parts of a list, counted from 1.
type Share struct{ n, of int }

// Has reports whether the share contains element i of the list.
func (s Share) Has(i int) bool { return i%s.of == s.n-1 }

// String implements [flag.Value].
func (s Share) String() string { return fmt.Sprintf("%d/%d", s.n, s.of) }

// Set implements [flag.Value]. An example of text is "1/2".
func (s *Share) Set(text string) error {
	var parsed Share
	_, err := fmt.Sscanf(text, "%d/%d", &parsed.n, &parsed.of)
	if err != nil || parsed.n < 1 || parsed.n > parsed.of || parsed.String() != text {
		return fmt.Errorf("%q is not a share; want one such as 1/2", text)
	}
	*s = parsed
	return nil
}
