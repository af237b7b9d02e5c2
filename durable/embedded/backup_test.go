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

// backUpHub runs in a child process. It makes random operations on a hub and writes backups of it.
// Its argument contains a seed, the path of the hub and the folder of the backups. It reports each
// backup:
//
//	B path  started
//	D path  done
func backUpHub(arg string) error {
	var seed uint64
	var path, folder string
	if _, err := fmt.Sscan(arg, &seed, &path, &folder); err != nil {
		return err
	}
	return torture(seed, false, path, func(hub *embedded.Hub) error {
		r := rand.New(rand.NewPCG(seed, 99))
		for n := 0; ; n++ {
			time.Sleep(time.Duration(100+r.IntN(100)) * time.Millisecond) // real time: lets operations of other goroutines run between two backups
			to := filepath.Join(folder, fmt.Sprintf("backup-%d.db", n))
			say("B %s", to)
			if _, err := hub.Backup(context.Background(), to); err != nil {
				return err
			}
			say("D %s", to)
		}
	})
}

// A backup under load contains everything acknowledged before it, each item once. Work can continue
// on the backup.
func TestBackup_UnderLoadContainsEverythingAcknowledged(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if *tortureSeed != 0 {
		seed = *tortureSeed
	}
	t.Logf("-torture.seed=%d", seed)
	folder := t.TempDir()
	c := startChild(t, "backups", fmt.Sprintf("%d %s %s", seed, filepath.Join(t.TempDir(), "hub.db"), folder))
	if got := c.line(t); got != "open" {
		t.Fatalf("unexpected output of the child: %q", got)
	}
	v, begun, path := newVictim(), "", ""
	var later []string // acknowledged since the backup started
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
			t.Errorf("Backup to the existing file %s: %v, want fs.ErrExist", to, err)
		}
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "other data" {
		t.Errorf("the existing file now has %q, %v", content, err)
	}
}
