package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Delete deletes the files of the task hub at path. It fails with a *[HeldError]
// if a process has it open, and with [fs.ErrNotExist] if there is none. What
// else may be wrong with the file does not matter.
func Delete(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("delete task hub: %w", err)
	}
	db, err := openBolt(path, 10*time.Millisecond, &bolt.Options{ReadOnly: true}) // for its lock
	if errors.As(err, new(*HeldError)) {
		return fmt.Errorf("delete task hub: %w", err)
	}
	if db != nil {
		defer func() { _ = db.Close() }() // it was only read
	}
	// The journal goes first: without it a file that was not closed is refused,
	// not taken for what it was some time ago.
	for _, name := range []string{journalPath(path, 0), journalPath(path, 1), ownerPath(path), path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete task hub: %w", err)
		}
	}
	return nil
}
