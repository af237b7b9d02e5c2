package hubfile

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/google/go-cmp/cmp"
)

// openRelaxed opens a relaxed store that does not flush while it is open.
func openRelaxed(t *testing.T, path string, log *strings.Builder) *opened {
	t.Helper()
	o := quiet
	o.Relaxed, o.Logger = true, slog.New(slog.NewTextHandler(log, nil))
	s := openStore(t, path, o)
	t.Cleanup(s.die)
	return s
}

// instances returns the IDs of a store's instances.
func (s *opened) instances(t *testing.T) (ids []string) {
	t.Helper()
	err := s.View(func(tables *logstore.View) error {
		return tables.Scan(instancesTable, "", func(id string, _ []byte) (bool, error) {
			ids = append(ids, id)
			return false, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// A power loss removes a group from the middle of a relaxed journal. The groups after it are
// discarded, too, so the hub returns to an earlier state. Discarded groups must not reappear,
// however many groups are written before the process is killed. They may still be in the files,
// right where the new ones end, or in the file that is not being written.
func TestStore_GroupsLostInAPowerLossStayLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		files   [2][]string // groups in each journal file
		damaged int         // index of the lost record in the first file
		kept    []string
	}{
		{"the start of the only file", [2][]string{{"a1", "a2", "a3", "a4"}}, 0, nil},
		{"the start of the first file", [2][]string{{"a1", "a2", "a3"}, {"a4", "a5"}}, 0, nil},
		{"the middle of the first file", [2][]string{{"a1", "a2", "a3"}, {"a4", "a5"}}, 1, []string{"a1"}},
		{"the end of the first file", [2][]string{{"a1", "a2", "a3"}, {"a4", "a5"}}, 2, []string{"a1", "a2"}},
	} {
		for added := range 6 {
			t.Run(fmt.Sprintf("%s, then %d groups", tt.name, added), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "hub.db")
				var log strings.Builder
				s := openRelaxed(t, path, &log)
				put := func(id string) (offset int64) {
					t.Helper()
					offset = s.file.journal.offset
					if err := s.put(instancesTable, id, make([]byte, 100)); err != nil {
						t.Fatal(err)
					}
					return offset
				}
				var offsets []int64
				for i, ids := range tt.files {
					if i > 0 && len(ids) > 0 {
						s.file.journal.Rotate() // as at the start of a slow flush
					}
					for _, id := range ids {
						offsets = append(offsets, put(id))
					}
				}
				hole := make([]byte, offsets[1])
				if _, err := s.file.journal.files[0].WriteAt(hole, offsets[tt.damaged]); err != nil {
					t.Fatal(err)
				}
				s.die()

				s = openRelaxed(t, path, &log)
				if diff := cmp.Diff(tt.kept, s.instances(t)); diff != "" {
					t.Errorf("groups after the power loss (-want +got):\n%s", diff)
				}
				want := tt.kept
				for i := range added {
					id := fmt.Sprint("b", i)
					put(id)
					want = append(want[:len(want):len(want)], id)
				}
				s.die()

				for range 2 {
					s = openRelaxed(t, path, &log)
					if diff := cmp.Diff(want, s.instances(t)); diff != "" {
						t.Errorf("groups after the process was killed (-want +got):\n%s", diff)
					}
					s.die()
				}
				if n := strings.Count(log.String(), "did not reach the disk"); n != 1 {
					t.Errorf("the log reports a loss %d times, want once:\n%s", n, &log)
				}
			})
		}
	}
}
