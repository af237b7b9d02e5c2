package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// backUpHub does random operations on a hub, and writes backups of it, in a child. Its argument is a
// seed and the paths of the hub and of the backups' folder. It reports each backup:
//
//	B path  begins
//	D path  is done
func backUpHub(arg string) error {
	var seed uint64
	var path, folder string
	if _, err := fmt.Sscan(arg, &seed, &path, &folder); err != nil {
		return err
	}
	return torture(seed, false, path, func(hub *embedded.Hub) error {
		r := rand.New(rand.NewPCG(seed, 99))
		for n := 0; ; n++ {
			time.Sleep(time.Duration(100+r.IntN(100)) * time.Millisecond) // real time: operations of other goroutines come between two backups
			to := filepath.Join(folder, fmt.Sprintf("backup-%d.db", n))
			say("B %s", to)
			if _, err := hub.Backup(context.Background(), to); err != nil {
				return err
			}
			say("D %s", to)
		}
	})
}

// Under load a backup has all that was acknowledged before it, everything exactly once, and
// work continues on it.
func TestBackup_UnderLoadHasAllThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if *tortureSeed != 0 {
		seed = *tortureSeed
	}
	t.Logf("-torture.seed=%d", seed)
	folder := t.TempDir()
	c := startChild(t, "backups", fmt.Sprintf("%d %s %s", seed, filepath.Join(t.TempDir(), "hub.db"), folder))
	if got := c.line(t); got != "open" {
		t.Fatalf("the child says %q", got)
	}
	v, begun, path := newVictim(), "", ""
	var later []string // what was acknowledged since the backup began
	for done := 0; done < testshare.Amount(12, 4); {
		line := c.line(t)
		switch kind := line[:1]; {
		case kind == "B":
			_, _ = fmt.Sscan(line[1:], &path)
			begun = line
		case kind == "D":
			v.verify(t, path)
			for _, line := range later {
				v.note(t, line)
			}
			begun, later = "", nil
			done++
		case begun != "":
			later = append(later, line)
		default:
			v.note(t, line)
		}
		if t.Failed() {
			t.Fatalf("in %s", path)
		}
	}
	c.kill()
	if missing := v.missing(); len(missing) > 0 {
		t.Errorf("no operation %q was acknowledged", missing)
	}
}

func TestBackup_ReplacesNoFile(t *testing.T) {
	t.Parallel()
	hub := open(t, filepath.Join(t.TempDir(), "hub.db"), impatient)
	path := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(path, []byte("other data"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{path, hub.Path()} {
		if _, err := hub.Backup(t.Context(), to); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a backup over %s: %v, want that it exists", to, err)
		}
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "other data" {
		t.Errorf("the file has %q, %v", content, err)
	}
}
