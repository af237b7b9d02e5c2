package runs

import (
	"slices"
	"testing"
)

func TestBase_CompactsToOneRunWithoutDeletions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		s := newStage(t, seed)
		for range 6 {
			if err := s.write(50, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.compare()
		all := s.version().runs
		if len(all) != 1 {
			t.Fatalf("seed %d: there are %d runs, want 1", seed, len(all))
		}
		records, deletions := all[0].counts()
		want := 0
		for _, table := range s.truth[s.last] {
			want += len(table)
		}
		if records != uint64(want) || deletions != 0 {
			t.Errorf("seed %d: the run has %d records and %d deletions, want %d and none", seed, records, deletions, want)
		}
		names := s.Names()
		if err := s.Compact(t.Context()); err != nil || !slices.Equal(names, s.Names()) {
			t.Errorf("seed %d: another compaction: %v, files %q; want %q", seed, err, s.Names(), names)
		}
		s.reopen()
		s.compare()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
