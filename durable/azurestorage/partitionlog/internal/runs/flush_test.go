package runs

import (
	"fmt"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// A flush commits a manifest if its layer has records or a newer group. Group 0 is the group of a log
// without records.
func TestBase_CommitsAFlushUnlessNothingIsNew(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		written, records int
		newer            uint64
		want             bool
	}{
		{0, 0, 0, false},
		{0, 0, 1, true},
		{0, 1, 0, true},
		{0, 1, 1, true},
		{0, 3, 0, true},
		{2, 0, 0, false},
		{2, 0, 1, true},
		{2, 1, 0, true},
		{2, 3, 1, true},
	} {
		s := newStage(t, 1)
		for range tt.written {
			if err := s.write(5, false); err != nil {
				t.Fatal(err)
			}
		}
		s.settle()
		last, commits := s.version().last, s.files.count("commit")
		l := logstore.NewLayer(testTables, last+tt.newer)
		for i := range tt.records {
			l.Set(plain, fmt.Sprint("new ", i), []byte("value"))
		}
		if err := s.Write(l, false); err != nil {
			t.Fatal(err)
		}
		s.settle()
		if got := s.files.count("commit") > commits; got != tt.want || s.version().last != last+tt.newer {
			t.Errorf("after %d flushes, %d records in a group that is %d newer: committed %t, last group %d; want %t and %d",
				tt.written, tt.records, tt.newer, got, s.version().last, tt.want, last+tt.newer)
		}
		reopened := s.version().last
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.open()
		if s.version().last != reopened {
			t.Errorf("the base has group %d after it was opened again, want %d", s.version().last, reopened)
		}
		found := 0
		if err := s.View(func(r logstore.Reader) error {
			for i := range tt.records {
				if v, err := r.Get(plain, []byte(fmt.Sprint("new ", i))); err != nil || string(v) != "value" {
					return fmt.Errorf("record %d is %q: %w", i, v, err)
				}
				found++
			}
			return nil
		}); err != nil || found != tt.records {
			t.Errorf("%d of %d records are found: %v", found, tt.records, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
