package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Workers take an entity from each other, and some of their batches do not count. Of each
// batch of the last runs, however long ago it was, the sentinel says whether it counted.
func TestEntityBatches_TellWhichCounted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		column, mark, runs := "", "", 0
		counted := map[string]bool{}
		for n := range 500 {
			if mark == "" {
				runs++
				mark = fmt.Sprintf("%08d", runs) // digits only, as a mark can be
			}
			after := ParseEntityBatches(column).Next(mark)
			counted[after.Name()] = r.IntN(50) > 0 || runs == runsKnown
			if counted[after.Name()] {
				column = after.String()
			} else {
				mark = ""
			}
			if r.IntN(100) == 0 && runs < runsKnown { // another worker takes the entity
				mark = ""
			}
			if n%50 > 0 {
				continue
			}
			for name, want := range counted {
				if got := ParseEntityBatches(column).Counted(name); got != want {
					t.Fatalf("seed %d: batch %q counted: %v, want %v; the sentinel says %q", seed, name, got, want, column)
				}
			}
		}
	}
}

// Batches that earlier versions named are known, and those of runs that are forgotten are
// taken for ones that counted.
func TestEntityBatches_TellOfOlderOnes(t *testing.T) {
	t.Parallel()
	long := EntityBatches{}
	for n := range 2 * runsKnown {
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
		if got := ParseEntityBatches(tt.column).Counted(tt.name); got != tt.want {
			t.Errorf("%q says that %q counted: %v, want %v", tt.column, tt.name, got, tt.want)
		}
	}
}
