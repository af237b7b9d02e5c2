package hubfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// An owner is what the file beside a hub's file says of the process that has
// it open.
type owner struct {
	PID     int    `json:"pid"`
	Host    string `json:"host"`
	Contact string `json:"contact,omitempty"`
}

// ownerPath returns the name of the file beside the hub's.
func ownerPath(path string) string { return path + ".owner" }

func thisOwner(contact string) owner {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return owner{PID: os.Getpid(), Host: host, Contact: contact}
}

// readOwner returns what the file says; ok is false if there is none that can
// be read.
func readOwner(path string) (o owner, ok bool) {
	b, err := os.ReadFile(ownerPath(path))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return owner{}, false
	}
	return o, true
}

func (o owner) write(path string) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	// Whatever has the name goes: a link could lead to any file.
	err = removeOwner(path)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(ownerPath(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	}
	if err == nil {
		_, err = f.Write(append(b, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("say who has the task hub: %w", err)
	}
	return nil
}

func removeOwner(path string) error {
	if err := os.Remove(ownerPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (o owner) String() string { return fmt.Sprintf("process %d on host %s", o.PID, o.Host) }
