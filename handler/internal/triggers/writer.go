package triggers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// FileName is the file by which the host knows that a folder is a
// function.
const FileName = "function.json"

// generatedBy marks a function.json that this package wrote, and may change and
// remove. The host ignores the name.
const generatedBy = "handler -write-functions"

// Write writes the function.json of each function below root, a folder with a host.json,
// if it is missing or different. It removes files that it wrote for other functions, adds
// the extension bundle to host.json if a binding needs it, and reports changes to out.
func Write(root string, functions []*Function, out io.Writer) error {
	host, err := os.ReadFile(filepath.Join(root, settings.HostJSONFile))
	if err != nil {
		return err
	}
	w := writer{root: root, out: out}
	for _, f := range functions {
		if err := w.write(f); err != nil {
			return err
		}
	}
	if err := w.removeOthers(functions); err != nil {
		return err
	}
	for _, f := range functions {
		if kind := f.bundled(); kind != "" {
			return w.addBundle(host, f.Name, kind)
		}
	}
	return w.removeBundle(host)
}

// A writer writes below root and says so.
type writer struct {
	root string
	out  io.Writer
}

func (w writer) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(w.out, format+"\n", args...)
}

// write writes a function's file unless it is right already.
func (w writer) write(f *Function) error {
	text, err := f.json()
	if err != nil {
		return err
	}
	path := filepath.Join(w.root, f.Name, FileName)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, text):
		return nil
	case err == nil && !isGenerated(old):
		return fmt.Errorf("%s was not written by -write-functions: remove it, or give function %q another name", path, f.Name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	w.tell("wrote %s", path)
	return nil
}

// removeOthers removes the functions that were written before and are none of
// functions.
func (w writer) removeOthers(functions []*Function) error {
	entries, err := os.ReadDir(w.root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(w.root, entry.Name(), FileName)
		if !entry.IsDir() || slices.ContainsFunc(functions, func(f *Function) bool { return f.Name == entry.Name() }) {
			continue
		}
		old, err := os.ReadFile(path)
		if err != nil || !isGenerated(old) {
			continue // no function, or not ours
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // if nothing else is in it
		w.tell("removed %s", path)
	}
	return nil
}

func isGenerated(functionJSON []byte) bool {
	var file struct {
		GeneratedBy string `json:"generatedBy"`
	}
	return json.Unmarshal(settings.PlainJSON(functionJSON), &file) == nil && file.GeneratedBy == generatedBy
}

// Bundle is the member of host.json that lets the host load extensions.
const Bundle = `
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.*, 5.0.0)"
  },`

// addBundle adds the extension bundle to host.json unless it has one, and leaves
// all else in it as it is.
func (w writer) addBundle(host []byte, function, kind string) error {
	found, err := settings.ParseHostJSON(host)
	if err != nil {
		return err
	}
	if _, has := found.Lookup("extensionBundle"); has {
		return nil
	}
	mark := len(host) - len(bytes.TrimPrefix(host, []byte("\xef\xbb\xbf")))
	brace := mark + bytes.IndexByte(settings.PlainJSON(host), '{') + 1
	added := slices.Concat(host[:brace], []byte(Bundle), host[brace:])
	if _, err := settings.ParseHostJSON(added); err != nil {
		return fmt.Errorf("add the extension bundle: %w: add it by hand, as\n%s", err, Bundle)
	}
	if err := w.writeHost(added); err != nil {
		return err
	}
	w.tell("added the extension bundle to host.json: function %s has a %s, which the host loads from there", function, kind)
	return nil
}

// removeBundle takes the extension bundle out of host.json again, if it is as
// addBundle wrote it.
func (w writer) removeBundle(host []byte) error {
	before, after, found := bytes.Cut(host, []byte(Bundle))
	if !found {
		return nil
	}
	if err := w.writeHost(slices.Concat(before, after)); err != nil {
		return err
	}
	w.tell("removed the extension bundle from host.json: no function needs it")
	return nil
}

func (w writer) writeHost(text []byte) error {
	return os.WriteFile(filepath.Join(w.root, settings.HostJSONFile), text, 0o644)
}
