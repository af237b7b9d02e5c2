package instances

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestIDSet_IsASet(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var s IDSet
	want := map[int]bool{}
	for range 2_000 {
		id := rng.IntN(1_000)
		switch rng.IntN(20) {
		case 0:
			id = -id
		case 1:
			id += sparseFrom - 500
		case 2:
			id = math.MaxInt - id
		}
		if s.Has(id) != want[id] || s.Add(id) == want[id] || !s.Has(id) {
			t.Fatalf("Add(%d): was in the set: %v", id, want[id])
		}
		want[id] = true
	}
	if s.Size != len(want) {
		t.Errorf("Size = %d, want %d", s.Size, len(want))
	}
	for id := range 2_000 {
		if s.Has(id) != want[id] {
			t.Errorf("Has(%d) = %v", id, s.Has(id))
		}
	}
}
