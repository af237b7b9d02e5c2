package crashes

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestWorkOf_ReturnsTheWorkOfThePanickingGoroutine(t *testing.T) {
	t.Parallel()
	work := WorkName("activity", "A", "e", 3, "a \"b\" ü")
	const shown = `labels:{"durable.item": "1", "durable.work": "activity \"A\" 3 \"e\" \"a \\\"b\\\" \u00fc\""}]:` + "\n"
	for name, tt := range map[string]struct{ text, want string }{
		"a panic":           {"panic: x\n\ngoroutine 7 [running " + shown, work},
		"a fault":           {"panic: y\n[signal SIGSEGV]\n\ngoroutine 7 gp=0x1 m=3 mp=0x2 [running " + shown, work},
		"a fatal error":     {"fatal error: concurrent map writes\n\ngoroutine 7 [running " + shown, work},
		"one after another": {"panic: x\n\ngoroutine 7 [running]:\nmain()\n\ngoroutine 8 [running " + shown, ""},
		"a signal":          {"SIGQUIT: quit\n\ngoroutine 7 [running " + shown, ""},
		"cut short":         {"panic: x\n\ngoroutine 7 [running " + shown[:40], ""},
		"nothing":           {"", ""},
	} {
		if got := workOf(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLedger_RemovesEndedAndResumedWork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	l := &Ledger{path: path, counts: Counts{}}
	bad, its, other := WorkName("orchestrator", "O", "", 0, "b"), WorkName("activity", "A", "e", 1, "b"), WorkName("activity", "A", "e", 1, "a b")
	held := Count{Crashes: Limit, IsSetAside: true}
	inFile := func(want Counts) {
		t.Helper()
		if got, err := Read(path); err != nil || !maps.Equal(got, want) {
			t.Errorf("the file contains %v (%v); want %v", got, err, want)
		}
	}
	if err := (&Ledger{path: path, counts: Counts{bad: held, its: held, other: held}}).store(); err != nil {
		t.Fatal(err)
	}
	l.counts = Counts{bad: held, its: held, other: held, "an entry that the file does not have": held}
	if err := l.Done(bad); err != nil {
		t.Fatal(err)
	}
	inFile(Counts{its: held, other: held})
	if l.IsSetAside(bad) || !l.IsSetAside(its) || !l.IsSetAside(other) {
		t.Errorf("wrong work is set aside: %v", l.counts)
	}
	if err := l.Resume("b"); err != nil {
		t.Fatal(err)
	}
	inFile(Counts{other: held})
	if l.IsSetAside(its) || !l.IsSetAside(other) {
		t.Errorf("wrong work is set aside: %v", l.counts)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("the folder contains %v (%v); want only the ledger", files, err)
	}
	if (*Ledger)(nil).IsSetAside(bad) {
		t.Error("a nil ledger sets work aside")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if l.IsSetAside(other) {
		t.Error("work that was removed from the file is still set aside")
	}
	if err := os.WriteFile(path, []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	if counts, err := Read(path); err != nil || counts == nil {
		t.Errorf("a file without an object was read as %v, %v", counts, err)
	}
}
