package bloblog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// onAzurite returns the configuration of a log in a new container on Azurite, and a counter of its
// requests.
func onAzurite(t *testing.T) (Config, *azuritetest.Counter) {
	t.Helper()
	c, counter := chaintest.Azurite(t)
	return Config{Blobs: c, Hub: "hub", Prefix: "p00/"}, counter
}

func open(t *testing.T, cfg Config) (*Log, *Recovered) {
	t.Helper()
	l, r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Abandon)
	return l, r
}

func appendGroups(t *testing.T, l *Log, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := l.Append(n, parts(group(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// parts returns b in two parts.
func parts(b []byte) logstore.Parts { return logstore.Parts{b[:len(b)/3], b[len(b)/3:]} }

// group returns the content of group n. Every fifth group is large.
func group(n uint64) []byte {
	b := fmt.Appendf(nil, "group %d", n)
	if n%5 == 0 {
		b = append(b, bytes.Repeat([]byte{byte(n)}, 1000)...)
	}
	return b
}

func wantGroups(t *testing.T, frames []Frame, from, to uint64) {
	t.Helper()
	if len(frames) != int(to-from+1) {
		t.Errorf("got %d groups, want groups %d to %d", len(frames), from, to)
	}
	for i, f := range frames {
		if n := from + uint64(i); f.Number != n || string(f.Changes) != string(group(n)) {
			t.Errorf("got group %[2]d with content %.20[3]q, want group %[1]d", n, f.Number, f.Changes)
		}
	}
}

func TestLog_TheNextOwnerAndReadersGetAllGroups(t *testing.T) {
	cfg, _ := onAzurite(t)
	cfg.MaxBlock = 400
	if _, _, err := OpenReader(t.Context(), cfg); !errors.Is(err, ErrNoLog) {
		t.Errorf("OpenReader without a log: %v; want ErrNoLog", err)
	}
	l, r := open(t, cfg)
	if r.Last != 0 || r.Manifest != nil || len(r.Groups) != 0 || r.OpenCount == 0 || r.CrashCount != 0 {
		t.Errorf("new log: got %+v", r)
	}
	reader, _, err := OpenReader(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	appendGroups(t, l, 1, 10)
	if _, _, err := Open(t.Context(), cfg); !errors.As(err, new(*HeldError)) {
		t.Errorf("Open by a second owner: %v; want a HeldError", err)
	}
	l.Rotate()
	appendGroups(t, l, 11, 20)
	frames, err := reader.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantGroups(t, frames, 1, 20)
	if err := l.SetBase(12, []byte("manifest")); err != nil {
		t.Fatal(err)
	}
	if frames, err = reader.Next(t.Context()); err != nil || len(frames) != 1 || string(frames[0].Manifest) != "manifest" || frames[0].Number != 12 {
		t.Errorf("reading after a manifest: %v, %v", frames, err)
	}
	l.Rotate()
	appendGroups(t, l, 21, 22)
	if err := l.Close(false); err != nil {
		t.Fatal(err)
	}
	first := r.OpenCount
	l, r = open(t, cfg)
	if r.Last != 22 || string(r.Manifest) != "manifest" || r.Base != 12 || r.OpenCount <= first || r.CrashCount != 0 {
		t.Errorf("next owner: got %+v", r)
	}
	wantGroups(t, r.Groups, 13, 22)
	appendGroups(t, l, 23, 23)
	if frames, err = reader.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGroups(t, frames, 21, 23)
}

func TestLog_MakesTheDocumentedNumberOfRequests(t *testing.T) {
	cfg, counter := onAzurite(t)
	cfg.Confirm = chaintest.Identify(t, cfg.Blobs, "hub")
	cost := func(what string, want int, f func()) {
		t.Helper()
		counter.Reset()
		f()
		if got := counter.Total(nil); got != want {
			t.Errorf("%s: %d requests, want %d:\n%s", what, got, want, counter)
		}
	}
	var l *Log
	cost("opening a log that does not exist", 8, func() { l, _ = open(t, cfg) })
	cost("appending ten groups", 10, func() { appendGroups(t, l, 1, 10) })
	cost("opening a log with an owner", 1, func() { _, _, _ = Open(t.Context(), cfg) })
	cost("roll-over", 6, func() { // includes the append of the group
		l.Rotate()
		appendGroups(t, l, 11, 11)
		l.tasks.Wait()
	})
	var reader *Reader
	cost("opening a reader", 4, func() { reader, _, _ = OpenReader(t.Context(), cfg) })
	cost("reading without new groups", 1, func() { _, _ = reader.Next(t.Context()) })
	l.Rotate()
	appendGroups(t, l, 12, 12)
	cost("a manifest that makes a blob obsolete", 2, func() {
		l.tasks.Wait()
		counter.Reset()
		if err := l.SetBase(11, []byte("manifest")); err != nil {
			t.Error(err)
		}
		l.tasks.Wait()
	})
	cost("closing", 2, func() {
		if err := l.Close(false); err != nil {
			t.Error(err)
		}
	})
	cost("opening", 5, func() { l, _ = open(t, cfg) })
	cost("opening a reader at the end", 3, func() { _, _, _ = OpenReader(t.Context(), cfg) })
}

func TestOpen_RefusesALogOfAnotherHub(t *testing.T) {
	cfg, _ := onAzurite(t)
	l, _ := open(t, cfg)
	if err := l.Close(false); err != nil {
		t.Fatal(err)
	}
	cfg.Hub = "other"
	_, _, err := Open(t.Context(), cfg)
	if d, ok := errors.AsType[*chain.DamageError](err); !ok || !strings.HasPrefix(d.Blob, "p00/log-") {
		t.Errorf("Open of another hub's log: %v", err)
	}
	cfg.Hub = "hub"
	if l, _, err = Open(t.Context(), cfg); err != nil {
		t.Errorf("Open after a refused Open: %v", err)
	} else {
		l.Abandon()
	}
}
