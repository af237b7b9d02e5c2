package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Several workers own an entity in turn, and some of their batches are not committed. For every batch
// of the recorded runs, the sentinel shows whether it was committed.
func TestEntityBatches_RecordWhichBatchesWereCommitted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		column, mark, runs := "", "", 0
		counted := map[string]bool{}
		for n := range 500 {
			if mark == "" {
				runs++
				mark = fmt.Sprintf("%08d", runs) // a mark may consist of digits only
			}
			after := ParseEntityBatches(column).Next(mark)
			counted[after.Name()] = r.IntN(50) > 0 || runs == maxRuns
			if counted[after.Name()] {
				column = after.String()
			} else {
				mark = ""
			}
			if r.IntN(100) == 0 && runs < maxRuns { // another worker takes over the entity
				mark = ""
			}
			if n%50 > 0 {
				continue
			}
			for name, want := range counted {
				if got := ParseEntityBatches(column).IsCommitted(name); got != want {
					t.Fatalf("seed %d: IsCommitted(%q) = %v, want %v; the column is %q", seed, name, got, want, column)
				}
			}
		}
	}
}

// The format of earlier versions is readable, and batches of older runs than the recorded ones count as
// committed.
func TestEntityBatches_TreatOldRunsAsCommitted(t *testing.T) {
	t.Parallel()
	long := EntityBatches{}
	for n := range 2 * maxRuns {
		long = long.Next(fmt.Sprint("run", n))
	}
	for _, tt := range []struct {
		column, name string
		want         bool
	}{
		{"", "1 a", false},
		{"7 aaaaaaaa 12345678", "7 aaaaaaaa", true},
		{"7 aaaaaaaa 12345678", "6 12345678", true},
		{"7 aaaaaaaa 12345678", "7 12345678", false},
		{"7 aaaaaaaa 12345678", "8 bbbbbbbb", false},
		{long.String(), "1 run0", true},
		{long.String(), "40 another", false},
		{"a:1", "no number", true},
	} {
		if got := ParseEntityBatches(tt.column).IsCommitted(tt.name); got != tt.want {
			t.Errorf("with column %q, IsCommitted(%q) = %v, want %v", tt.column, tt.name, got, tt.want)
		}
	}
}
