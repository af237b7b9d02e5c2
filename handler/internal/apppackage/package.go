package apppackage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Package builds the main package for linux/amd64, which Azure runs, and writes the zip file of the app in the
// folder root. The same sources and the same Go give the same bytes.
func Package(ctx context.Context, root, mainPackage, zip string, out io.Writer) error {
	if _, err := executablePath(root); err != nil {
		return err
	}
	if mainPackage == "" || mainPackage == "command-line-arguments" {
		return errors.New("this program does not know its package: build it with go build PACKAGE, not from single files")
	}
	folder, err := os.MkdirTemp("", "package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "app")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", program, mainPackage)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s for linux/amd64: %w\n%s", mainPackage, err, text)
	}
	if err := os.MkdirAll(filepath.Dir(zip), 0o755); err != nil {
		return err
	}
	n, err := write(zip, root, program)
	if err != nil {
		return err
	}
	note, err := planNote(root)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %d files\n%s", zip, n, note)
	return err
}

// write writes the zip. It writes another file and renames it, so that zip is always complete. It returns the number
// of files in it.
func write(zip, root, program string) (n int, err error) {
	entries, err := list(root, program, zip)
	if err != nil {
		return 0, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(zip), ".package-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // the file has another name by now
	defer tmp.Close()
	if err := pack(tmp, entries); err != nil {
		return 0, err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Close()); err != nil {
		return 0, err
	}
	return len(entries), os.Rename(tmp.Name(), zip)
}
