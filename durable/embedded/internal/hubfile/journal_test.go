package hubfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/google/go-cmp/cmp"
)

var testID = []byte("the hub's ID")

func newJournal(t *testing.T, path string, relaxed bool) *journal {
	t.Helper()
	j, err := openJournal(path, testID, relaxed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.close() })
	return j
}

// payloadOf returns the payload of a test group. Its size varies.
func payloadOf(number uint64) []byte {
	return bytes.Repeat([]byte{byte(number)}, int(number*number*37%5000)+1)
}

// parts returns b in two parts.
func parts(b []byte) logstore.Parts { return logstore.Parts{b[:len(b)/3], b[len(b)/3:]} }

func (j *journal) mustAppend(t *testing.T, numbers ...uint64) {
	t.Helper()
	for _, n := range numbers {
		if err := j.Append(n, parts(payloadOf(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// recovered opens a journal and returns the numbers of its groups.
func recovered(t *testing.T, path string, after uint64) (numbers []uint64, lost bool, err error) {
	t.Helper()
	groups, greatest, err := newJournal(t, path, false).recover(after)
	for _, g := range groups {
		if !bytes.Equal(g.payload, payloadOf(g.number)) {
			t.Errorf("group %d has a wrong payload", g.number)
		}
		numbers = append(numbers, g.number)
	}
	return numbers, greatest > 0, err
}

// expect verifies the groups of a journal after a given group.
func expect(t *testing.T, path string, after uint64, want ...uint64) {
	t.Helper()
	got, lost, err := recovered(t, path, after)
	if err != nil || lost {
		t.Fatalf("recover: lost %v, %v", lost, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups after %d (-want +got):\n%s", after, diff)
	}
}

func TestJournal_ReturnsAppendedGroups(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "hub.db")
		expect(t, path, 0)
		j := newJournal(t, path, relaxed)
		j.mustAppend(t, 1, 2, 3)
		expect(t, path, 0, 1, 2, 3)
		expect(t, path, 2, 3)
		j.Rotate()
		j.mustAppend(t, 4, 5)
		expect(t, path, 0, 1, 2, 3, 4, 5)
		expect(t, path, 3, 4, 5)
		j.Rotate() // groups 1 to 3 are in the database
		j.mustAppend(t, 6)
		expect(t, path, 3, 4, 5, 6)
		expect(t, path, 5, 6)
		expect(t, path, 6)
	}
}

// A long payload is written in parts.
func TestJournal_ReturnsLongPayloads(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "hub.db")
		j := newJournal(t, path, relaxed)
		var want []string
		for n := range recordAlign + 1 {
			payload := bytes.Repeat([]byte{byte('a' + n)}, maxKept+n)
			want = append(want, string(payload))
			if err := j.Append(uint64(n+1), parts(payload)); err != nil {
				t.Fatal(err)
			}
		}
		j.mustAppend(t, recordAlign+2)
		groups, lost, err := newJournal(t, path, relaxed).recover(0)
		if err != nil || lost != 0 || len(groups) != recordAlign+2 {
			t.Fatalf("got %d groups, %d lost, %v; want %d and none lost", len(groups), lost, err, recordAlign+2)
		}
		for n, payload := range want {
			if string(groups[n].payload) != payload {
				t.Errorf("group %d has a wrong payload", n+1)
			}
		}
	}
}

func TestJournal_EndsAtAnIncompleteRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	j := newJournal(t, path, false)
	j.mustAppend(t, 1, 2)
	begin := j.offset
	j.mustAppend(t, 3)
	end := begin + int64(recordHead+len(payloadOf(3)))
	whole, err := os.ReadFile(journalPath(path, 0))
	if err != nil {
		t.Fatal(err)
	}
	for at := begin; at < end; at += 43 {
		torn := bytes.Clone(whole)
		clear(torn[at:end]) // only a part of the record is on the disk
		torn[end-1] = ^whole[end-1]
		if err := os.WriteFile(journalPath(path, 0), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, path, 0, 1, 2)
	}
	if err := os.WriteFile(journalPath(path, 0), whole[:end-5], 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, path, 0, 1, 2)
}

func TestJournal_TheNextRecordReplacesAFailedOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	j := newJournal(t, path, false)
	j.mustAppend(t, 1)
	at := j.offset
	j.mustAppend(t, 2)
	j.offset = at // as if the append of group 2 had failed
	if err := j.Append(2, parts(payloadOf(2)[:1])); err != nil {
		t.Fatal(err)
	}
	groups, _, err := j.recover(1)
	if err != nil || len(groups) != 1 || len(groups[0].payload) != 1 {
		t.Errorf("got %v, %v, want the second group 2", groups, err)
	}
}

// In a synced journal, a complete record after an incomplete one means that the disk is damaged.
// Acknowledged groups are then lost, which must be reported.
func TestJournal_RefusesDamageBeforeSyncedRecords(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "hub.db")
		j := newJournal(t, path, relaxed)
		j.mustAppend(t, 1)
		at := j.offset + recordHead
		j.mustAppend(t, 2, 3)
		if _, err := j.files[0].WriteAt([]byte{0xAA}, at); err != nil {
			t.Fatal(err)
		}
		got, lost, err := recovered(t, path, 0)
		switch {
		case relaxed && (err != nil || !lost || !cmp.Equal(got, []uint64{1})):
			t.Errorf("relaxed: got %v, lost %v, %v, want the groups before the damage", got, lost, err)
		case !relaxed && !errors.Is(err, errJournalGap):
			t.Errorf("durable: got %v, %v, want %v", got, err, errJournalGap)
		}
	}
}

func TestJournal_RefusesGroupsThatDoNotFollowTheDatabase(t *testing.T) {
	t.Parallel()
	for _, relaxed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "hub.db")
		newJournal(t, path, relaxed).mustAppend(t, 5, 6)
		got, lost, err := recovered(t, path, 3)
		switch {
		case relaxed && (err != nil || !lost || len(got) > 0):
			t.Errorf("relaxed: got %v, lost %v, %v, want no groups", got, lost, err)
		case !relaxed && !errors.Is(err, errJournalGap):
			t.Errorf("durable: got %v, %v, want %v", got, err, errJournalGap)
		}
		expect(t, path, 4, 5, 6)
		expect(t, path, 100) // left by an earlier turn
	}
}

func TestJournal_IgnoresTheJournalOfAnotherHub(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	j, err := openJournal(path, []byte("another ID"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.close() }()
	j.mustAppend(t, 1, 2)
	expect(t, path, 0)
}

func FuzzJournal(f *testing.F) {
	j := &journal{seed: 1}
	records := func(numbers ...uint64) (b []byte) {
		for _, number := range numbers {
			b = append(b, j.encode(nil, number, parts(payloadOf(number)))...)
		}
		return b
	}
	whole := records(1, 2)
	f.Add(whole, uint64(0))
	f.Add(whole[:len(whole)-8], uint64(1))
	f.Add(records(1, 3), uint64(0))
	f.Add(append(make([]byte, recordAlign), records(1, 5, 2)...), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, after uint64) {
		run, rest := j.run(b)
		for i, g := range run {
			if i > 0 && g.number != run[i-1].number+1 {
				t.Errorf("group %d follows %d", g.number, run[i-1].number)
			}
		}
		if g, greatest := j.later(rest, run, after); greatest > 0 && (g.number <= after || g.number > greatest) {
			t.Errorf("group %d is not between %d and %d", g.number, after, greatest)
		}
	})
}

func TestJournal_ReportsFailedWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hub.db")
	j := newJournal(t, path, true)
	readOnly, err := os.Open(journalPath(path, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	good := j.files[0]
	j.mustAppend(t, 1)
	j.files[0] = readOnly
	if err := j.Append(2, parts(payloadOf(2))); err == nil || errors.As(err, new(*logstore.UncertainError)) {
		t.Errorf("append returned %v, want an error that is not uncertain", err)
	}
	j.files[0] = good
	expect(t, path, 0, 1)
	j.mustAppend(t, 2)
	expect(t, path, 0, 1, 2)
	if err := j.Append(3, parts(make([]byte, maxGroup))); err == nil {
		t.Errorf("a group of %d bytes was accepted", maxGroup)
	}
}
