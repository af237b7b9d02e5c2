package hubfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// owner identifies the process that has a hub open. It is stored in a file beside the hub's.
type owner struct {
	PID     int    `json:"pid"`
	Host    string `json:"host"`
	Contact string `json:"contact,omitempty"`
}

// ownerPath returns the path of the owner file of a hub.
func ownerPath(path string) string { return path + ".owner" }

func thisOwner(contact string) owner {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return owner{PID: os.Getpid(), Host: host, Contact: contact}
}

// readOwner reads the owner file. ok is false if it is missing or invalid.
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
	// Delete an existing file instead of overwriting it: it could be a link.
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
		return fmt.Errorf("write the owner of the task hub: %w", err)
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
